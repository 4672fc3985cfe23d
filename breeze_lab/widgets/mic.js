// Records one channel of float32 PCM from the microphone and hands it to the kernel when stopped.
// Traits: pcm (binary), rate (Hz), count (+1 for each recording), problem (text), limit (s), name.

const TAP = `
class Tap extends AudioWorkletProcessor {
  constructor() { super(); this.held = []; this.size = 0; }
  process(inputs) {
    const channel = inputs[0][0];
    if (channel) {
      this.held.push(channel.slice());
      this.size += channel.length;
      if (this.size >= 2048) { this.port.postMessage(this.held); this.held = []; this.size = 0; }
    }
    return true;
  }
}
registerProcessor("breeze-lab-tap", Tap);`;

function cure(error) {
  if (!navigator.mediaDevices || !window.AudioWorkletNode)
    return "This page may not use the microphone: that needs https or localhost, and a browser tab (not VS Code). Upload a file instead.";
  if (error.name === "NotAllowedError") return "The browser blocks the microphone. Allow it beside the address bar, then press Record again.";
  if (error.name === "NotFoundError") return "No microphone was found. Connect one, or upload a file.";
  if (error.name === "NotReadableError") return "Another program holds the microphone. Close it, then press Record again.";
  return `The microphone failed (${error.name}: ${error.message}). Upload a file instead.`;
}

class Recorder {
  async open(onLevel) {
    if (!navigator.mediaDevices || !window.AudioWorkletNode) throw new Error("no media devices");
    this.stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    this.context = new AudioContext();
    const url = URL.createObjectURL(new Blob([TAP], { type: "text/javascript" }));
    await this.context.audioWorklet.addModule(url);
    URL.revokeObjectURL(url);
    this.blocks = [];
    this.samples = 0;
    this.tap = new AudioWorkletNode(this.context, "breeze-lab-tap", { numberOfInputs: 1, numberOfOutputs: 0 });
    this.tap.port.onmessage = ({ data }) => {
      let peak = 0;
      for (const block of data) {
        this.blocks.push(block);
        this.samples += block.length;
        for (const x of block) peak = Math.max(peak, Math.abs(x));
      }
      onLevel(peak, this.samples / this.context.sampleRate);
    };
    this.context.createMediaStreamSource(this.stream).connect(this.tap);
    await this.context.resume();
  }

  close() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.tap?.disconnect();
    const rate = this.context?.sampleRate;
    this.context?.close();
    const pcm = new Float32Array(this.samples ?? 0);
    let at = 0;
    for (const block of this.blocks ?? []) { pcm.set(block, at); at += block.length; }
    return { pcm, rate };
  }
}

function render({ model, el }) {
  el.classList.add("bl-mic");
  el.innerHTML = `
    <div class="bl-row">
      <button type="button" class="bl-button bl-record"><span class="bl-dot" aria-hidden="true"></span><span class="bl-what">Record</span></button>
      <meter class="bl-level" min="0" max="1" low="0.5" high="0.97" optimum="0.7" value="0" aria-label="Level of the microphone"></meter>
      <span class="bl-time">0.0 s</span>
    </div>
    <p class="bl-hint" role="status">Speak 5 to 15 s in a quiet room, at an even pace.</p>`;
  const button = el.querySelector("button");
  const [what, level, time, hint] = ["bl-what", "bl-level", "bl-time", "bl-hint"].map((c) => el.querySelector("." + c));
  let recorder = null;

  function tell(problem) {
    hint.textContent = problem;
    hint.classList.toggle("bl-warn", Boolean(problem));
    model.set("problem", problem);
    model.save_changes();
  }

  function show(state) {
    el.dataset.state = state;
    what.textContent = state === "recording" ? "Stop recording" : "Record";
    button.disabled = state === "opening";
  }

  async function start() {
    show("opening");
    const fresh = new Recorder();
    try {
      await fresh.open((peak, seconds) => {
        level.value = Math.min(1, Math.sqrt(peak));
        time.textContent = `${seconds.toFixed(1)} s`;
        if (seconds >= model.get("limit") && recorder === fresh) stop();
      });
    } catch (error) {
      fresh.close();
      show("idle");
      return tell(cure(error));
    }
    recorder = fresh;
    hint.classList.remove("bl-warn");
    hint.textContent = `Recording… it stops by itself after ${model.get("limit")} s.`;
    show("recording");
  }

  function stop() {
    const { pcm, rate } = recorder.close();
    recorder = null;
    level.value = 0;
    show("idle");
    if (!pcm.length) return tell("The microphone gave no sound. Choose another one in the browser, then press Record again.");
    hint.textContent = `${(pcm.length / rate).toFixed(1)} s recorded. Press Record to do it again.`;
    model.set("problem", "");
    model.set("rate", rate);
    model.set("pcm", new DataView(pcm.buffer));
    model.set("count", model.get("count") + 1);
    model.save_changes();
  }

  button.addEventListener("click", () => (recorder ? stop() : start()));
  show("idle");
  return () => recorder?.close();
}

export default { render };
