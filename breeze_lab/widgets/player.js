// Plays PCM while it arrives, without gaps, on WebAudio's clock.
// Messages in: {type: "sound", take, seed, first, final, hold, rate, expected} + float32 buffer; {type: "halt"}.
// Traits out: clock (s played of this take), ahead (s ready), gaps (times it ran dry), gap_s, phase; in: listen, gain.

const LEAD = 0.06; // s between scheduling and sounding
const BETWEEN = 0.35; // s of rest between takes
const engines = new Map(); // by the model's key: what initialize and render are given are not one object

class Track {
  constructor(message) {
    Object.assign(this, { take: message.take, seed: message.seed, rate: message.rate, expected: message.expected });
    this.pending = [];
    this.parts = []; // [context time, position, length] of what was scheduled
    this.total = 0; // s received
    this.scheduled = 0; // s handed to the audio clock
    this.final = false;
    this.running = false;
    this.hold = message.hold;
    this.least = 0; // grows with each gap: the estimate was too hopeful
    this.peaks = [];
  }

  add(message, samples) {
    this.hold = Math.max(message.hold, this.least);
    this.expected = message.expected;
    this.final = this.final || message.final;
    if (!samples.length) return;
    this.pending.push(samples);
    this.total += samples.length / this.rate;
    const step = Math.round(this.rate / 50);
    for (let i = 0; i < samples.length; i += step) {
      let peak = 0;
      for (let j = i; j < Math.min(i + step, samples.length); j++) peak = Math.max(peak, Math.abs(samples[j]));
      this.peaks.push(peak);
    }
  }

  played(now) {
    let position = 0;
    for (const [time, at, length] of this.parts) if (now >= time) position = at + Math.min(length, now - time);
    return position;
  }
}

class Engine {
  constructor(model) {
    this.model = model;
    this.tracks = [];
    this.sources = new Set();
    this.gaps = 0;
    this.gapSeconds = 0;
    this.shown = null;
    this.views = new Set();
    this.told = 0;
    this.newest = -1; // take
    this.halted = -1; // takes up to this one are no longer wanted
    this.leaving = () => (this.mute = true); // the page is about to go, and its way to the kernel with it
    window.addEventListener("beforeunload", this.leaving);
    this.unlock = () => this.context?.state === "suspended" && this.context.resume();
    for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, this.unlock);
    model.on("msg:custom", (message, buffers) => this.receive(message, buffers));
    model.on("change:gain", () => this.volume && (this.volume.gain.value = model.get("gain")));
  }

  open(rate) {
    if (!this.context || this.context.state === "closed") {
      this.context = new AudioContext({ sampleRate: rate });
      this.volume = this.context.createGain();
      this.volume.gain.value = this.model.get("gain");
      this.volume.connect(this.context.destination);
    }
    if (this.context.state === "suspended") this.context.resume();
    this.timer ??= setInterval(() => this.tick(), 40);
  }

  receive(message, buffers) {
    if (message.type === "halt") return this.halt();
    if (message.type !== "sound" || message.take <= this.halted) return;
    this.newest = message.take;
    this.mute = false;
    this.open(message.rate);
    let track = this.tracks.at(-1);
    if (!track || track.take !== message.take) {
      if (!this.tracks.length) { this.gaps = 0; this.gapSeconds = 0; }
      track = new Track(message);
      this.tracks.push(track);
    }
    const view = buffers?.[0];
    const samples = view ? new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength)) : new Float32Array(0);
    this.tick();
    track.add(message, samples);
    this.shown = this.tracks[0];
    this.tick();
  }

  halt() {
    this.halted = this.newest;
    for (const source of this.sources) source.stop();
    this.sources.clear();
    for (const track of this.tracks) { track.pending = []; track.final = true; }
    this.tracks = [];
    this.tick();
  }

  start(track, at) {
    track.running = true;
    track.next = at;
  }

  schedule(track) {
    while (track.pending.length) {
      const samples = track.pending.shift();
      const buffer = this.context.createBuffer(1, samples.length, track.rate);
      buffer.copyToChannel(samples, 0);
      const source = this.context.createBufferSource();
      source.buffer = buffer;
      source.connect(this.volume);
      source.start(track.next);
      source.onended = () => this.sources.delete(source);
      this.sources.add(source);
      track.parts.push([track.next, track.scheduled, buffer.duration]);
      track.scheduled += buffer.duration;
      track.next += buffer.duration;
    }
  }

  tick() {
    const now = this.context?.currentTime ?? 0;
    const track = this.tracks[0];
    if (!track) return this.tell("idle", now);
    this.shown = track;
    if (!this.model.get("listen")) {
      track.scheduled = track.total;
      track.pending = [];
      if (track.final) this.tracks.shift();
      return this.tell("muted", now);
    }
    if (this.context.state === "suspended") return this.tell("blocked", now);
    if (track.running && now >= track.next && !track.pending.length) {
      if (track.final) {
        this.tracks.shift();
        if (this.tracks[0]) this.tracks[0].earliest = now + BETWEEN;
        return this.tell(this.tracks.length ? "waiting" : "done", now);
      }
      this.gaps += 1; // ran dry: the sound was not there in time
      track.running = false;
      track.hold = track.least = Math.max(0.5, 2 * track.hold);
      track.dry = track.next;
    }
    if (!track.running) {
      const ready = track.total - track.scheduled;
      if (track.final && ready <= 0) { this.tracks.shift(); return this.tell("done", now); }
      if (now < (track.earliest ?? 0) || !(track.final || ready >= track.hold)) return this.tell("waiting", now);
      this.start(track, now + LEAD);
      if (track.dry !== undefined) this.gapSeconds += track.next - track.dry;
    } else if (now >= track.next) {
      this.gaps += 1; // the next piece came too late, though it is here now
      this.gapSeconds += now + LEAD - track.next;
      track.next = now + LEAD;
    }
    this.schedule(track);
    this.tell("playing", now);
  }

  tell(phase, now) {
    const track = this.shown;
    const clock = track ? track.played(now) : 0;
    const ahead = track ? track.total - clock : 0;
    this.last = { phase, clock, ahead, gaps: this.gaps, gapSeconds: this.gapSeconds, track };
    for (const view of this.views) view(this.last);
    if (this.mute) return;
    if (phase !== this.model.get("phase") || performance.now() - this.told > 250) {
      if (phase === "idle" && this.model.get("phase") === "idle") return this.rest();
      this.told = performance.now();
      const r = (x) => Math.round(x * 1000) / 1000;
      const told = { phase, clock: r(clock), ahead: r(ahead), gaps: this.gaps, gap_s: r(this.gapSeconds) };
      for (const [name, value] of Object.entries(told)) this.model.set(name, value);
      this.model.save_changes();
    }
    if (!this.tracks.length) this.rest();
  }

  rest() {
    clearInterval(this.timer);
    this.timer = undefined;
  }

  close() {
    this.rest();
    window.removeEventListener("beforeunload", this.leaving);
    for (const kind of ["pointerdown", "keydown"]) document.removeEventListener(kind, this.unlock);
    this.context?.close();
  }
}

const WORDS = {
  idle: "Ready",
  waiting: "Filling the buffer",
  playing: "Playing",
  muted: "Making, not playing",
  blocked: "Click anywhere to hear it",
  done: "Played to the end",
};

function draw(canvas, { track, clock }) {
  const span = track ? Math.max(track.final ? track.total : track.expected, track.total, 0.5) : 1;
  const peak = (from, to) => {
    const [first, last] = [Math.floor(from * span * 50), Math.ceil(to * span * 50)];
    return track && first < track.peaks.length ? Math.max(...track.peaks.slice(first, Math.max(last, first + 1))) : null;
  };
  drawBars(canvas, 4, peak, (part) => part * span <= clock);
}

function render({ model, el }) {
  el.classList.add("bl-player");
  el.innerHTML = `
    <canvas class="bl-canvas" role="img" aria-label="The sound while it is made; what was played is colored"></canvas>
    <div class="bl-row bl-figures">
      <span class="bl-phase"></span>
      <span>played <b class="bl-clock">0.0</b> s</span>
      <span>ready <b class="bl-ahead">0.0</b> s ahead</span>
      <span>gaps <b class="bl-gaps">0</b></span>
      <label class="bl-check"><input type="checkbox" class="bl-listen"> Play while it is made</label>
      <label class="bl-check">Volume <input type="range" class="bl-gain" min="0" max="1" step="0.05"></label>
    </div>`;
  const engine = engines.get(model.get("key"));
  const canvas = el.querySelector("canvas");
  const [phase, clock, ahead, gaps] = ["bl-phase", "bl-clock", "bl-ahead", "bl-gaps"].map((c) => el.querySelector("." + c));
  const listen = el.querySelector(".bl-listen");
  const gain = el.querySelector(".bl-gain");
  listen.checked = model.get("listen");
  gain.value = model.get("gain");
  listen.addEventListener("change", () => {
    model.set("listen", listen.checked);
    model.save_changes();
    if (!listen.checked) engine.halt();
  });
  gain.addEventListener("input", () => { model.set("gain", Number(gain.value)); model.save_changes(); });

  function view(last) {
    el.dataset.phase = last.phase;
    el.dataset.clock = last.clock.toFixed(3);
    el.dataset.gaps = last.gaps;
    el.dataset.total = (last.track?.total ?? 0).toFixed(3);
    el.dataset.take = last.track?.take ?? "";
    phase.textContent = WORDS[last.phase] + (last.track && last.phase !== "idle" ? ` (take ${last.track.take})` : "");
    clock.textContent = last.clock.toFixed(1);
    ahead.textContent = Math.max(0, last.ahead).toFixed(1);
    gaps.textContent = last.gaps ? `${last.gaps} (${last.gapSeconds.toFixed(2)} s)` : "0";
    draw(canvas, last);
  }
  const idle = { phase: "idle", clock: 0, ahead: 0, gaps: 0, gapSeconds: 0, track: null };
  engine.views.add(view);
  const observer = new ResizeObserver(() => view(engine.last ?? idle));
  observer.observe(canvas);
  view(engine.last ?? idle);
  return () => { engine.views.delete(view); observer.disconnect(); };
}

function initialize({ model }) {
  const engine = new Engine(model);
  engines.set(model.get("key"), engine);
  return () => { engines.delete(model.get("key")); engine.close(); };
}

export default { initialize, render };
