// The takes side by side: play, download, use again. The WAV is asked of the kernel when it is needed.
// Traits in: items [{number, title, text, lines, peaks, seconds, file}]. Messages out: {type: "wav"|"seed"|"drop", number, why}; in: {type: "wav", number, why, file} + buffer.

function spark(canvas, peaks, part) {
  drawBars(canvas, 3, (at) => peaks[Math.floor(at * peaks.length)], (at) => at < part);
}

function make(tag, className, text) {
  const node = Object.assign(document.createElement(tag), { className });
  if (text !== undefined) node.textContent = text;
  if (tag === "button") node.type = "button";
  return node;
}

function render({ model, el }) {
  el.classList.add("bl-takes");
  const list = make("ul", "bl-cards");
  const empty = make("p", "bl-hint", "Takes appear here, newest first, to be compared, downloaded and made again.");
  el.append(empty, list);
  const cards = new Map();
  let playing = null; // {number, audio}

  function silence() {
    if (!playing) return;
    playing.audio.pause();
    const card = cards.get(playing.number);
    playing = null;
    if (card) card.idle();
  }

  function build(item) {
    const node = make("li", "bl-card");
    node.dataset.number = item.number;
    const title = make("div", "bl-title", item.title);
    const canvas = make("canvas", "bl-canvas bl-spark");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Waveform of take ${item.number}, ${item.seconds.toFixed(1)} seconds`);
    const text = make("p", "bl-quote", item.text);
    const lines = make("dl", "bl-lines");
    for (const [name, value] of item.lines) lines.append(make("dt", "", name), make("dd", "", value));
    const row = make("div", "bl-row");
    const play = make("button", "bl-button", "Play");
    const save = make("button", "bl-button", "Download");
    const seed = make("button", "bl-button", "Use seed");
    const drop = make("button", "bl-button bl-quiet", "Remove");
    for (const [button, name] of [[play, "Play"], [save, "Download"], [seed, "Use the seed of"], [drop, "Remove"]])
      button.setAttribute("aria-label", `${name} take ${item.number}`);
    play.addEventListener("click", () => (playing?.number === item.number ? silence() : model.send({ type: "wav", number: item.number, why: "play" })));
    save.addEventListener("click", () => model.send({ type: "wav", number: item.number, why: "save" }));
    seed.addEventListener("click", () => model.send({ type: "seed", number: item.number }));
    drop.addEventListener("click", () => model.send({ type: "drop", number: item.number }));
    row.append(play, save, seed, drop);
    node.append(title, canvas, text, lines, row);
    const card = {
      node,
      idle: () => { play.textContent = "Play"; node.dataset.playing = ""; spark(canvas, item.peaks, 0); },
      busy: (part) => { play.textContent = "Stop"; node.dataset.playing = part.toFixed(3); spark(canvas, item.peaks, part); },
    };
    new ResizeObserver(() => playing?.number !== item.number && card.idle()).observe(canvas);
    return card;
  }

  function draw() {
    const items = model.get("items");
    empty.hidden = items.length > 0;
    for (const [number, card] of cards)
      if (!items.some((item) => item.number === number)) {
        if (playing?.number === number) silence();
        card.node.remove();
        cards.delete(number);
      }
    items.forEach((item, i) => {
      if (!cards.has(item.number)) cards.set(item.number, build(item));
      const node = cards.get(item.number).node;
      if (list.children[i] !== node) list.insertBefore(node, list.children[i] ?? null);
    });
  }

  function receive(message, buffers) {
    if (message.type !== "wav") return;
    const url = URL.createObjectURL(new Blob([buffers[0]], { type: "audio/wav" }));
    if (message.why === "save") {
      const link = Object.assign(document.createElement("a"), { href: url, download: message.file });
      el.append(link);
      link.click();
      link.remove();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
      return;
    }
    silence();
    const audio = new Audio(url);
    playing = { number: message.number, audio };
    const card = cards.get(message.number);
    const step = () => {
      if (playing?.audio !== audio) return;
      card.busy(audio.duration ? audio.currentTime / audio.duration : 0);
      requestAnimationFrame(step);
    };
    audio.onended = silence;
    audio.play().then(step, silence);
  }

  model.on("msg:custom", receive);
  model.on("change:items", draw);
  draw();
  return () => { silence(); model.off("msg:custom", receive); model.off("change:items", draw); };
}

export default { render };
