// Shows a clip with its length and level, a selection that can be dragged or typed, and plays the selected part.
// Traits in: peaks [0..1], seconds, told, kind, trimmable; both ways: start, end (s). Message out: {type: "hear"}; in: {type: "wav"} + buffer.

function render({ model, el }) {
  el.classList.add("bl-wave");
  el.innerHTML = `
    <div class="bl-stage"><canvas class="bl-canvas" role="img"></canvas>
      <div class="bl-handle" data-end="start"></div><div class="bl-handle" data-end="end"></div></div>
    <div class="bl-row">
      <button type="button" class="bl-button bl-hear">Play the selection</button>
      <label class="bl-number">From <input type="number" class="bl-start" min="0" step="0.1"> s</label>
      <label class="bl-number">to <input type="number" class="bl-end" min="0" step="0.1"> s</label>
      <span class="bl-told"></span>
    </div>`;
  const canvas = el.querySelector("canvas");
  const stage = el.querySelector(".bl-stage");
  const boxes = { start: el.querySelector(".bl-start"), end: el.querySelector(".bl-end") };
  const handles = [...el.querySelectorAll(".bl-handle")];
  const hear = el.querySelector(".bl-hear");
  const told = el.querySelector(".bl-told");
  let audio = null;

  function draw() {
    const [peaks, seconds] = [model.get("peaks"), model.get("seconds")];
    el.hidden = !seconds;
    if (!seconds) return;
    const [start, end] = [model.get("start"), model.get("end")];
    drawBars(
      canvas, 3, (part) => peaks[Math.floor(part * peaks.length)], (part) => part * seconds >= start && part * seconds <= end
    );
    handles[0].style.left = `${(100 * start) / seconds}%`;
    handles[1].style.left = `${(100 * end) / seconds}%`;
    for (const name of ["start", "end"]) {
      boxes[name].max = seconds.toFixed(1);
      if (document.activeElement !== boxes[name]) boxes[name].value = model.get(name).toFixed(1);
      boxes[name].disabled = !model.get("trimmable");
    }
    for (const handle of handles) handle.hidden = !model.get("trimmable");
    told.textContent = model.get("told");
    told.className = `bl-told bl-${model.get("kind")}`;
    canvas.setAttribute("aria-label", `Waveform of the clip, ${seconds.toFixed(1)} seconds, ${start.toFixed(1)} to ${end.toFixed(1)} selected. ${model.get("told")}`);
  }

  function move(name, value) {
    const [least, seconds] = [0.1, model.get("seconds")];
    if (!Number.isFinite(value)) return;
    if (name === "start") value = Math.min(Math.max(0, value), model.get("end") - least);
    else value = Math.max(Math.min(seconds, value), model.get("start") + least);
    model.set(name, Math.round(value * 100) / 100);
    draw();
  }

  for (const name of ["start", "end"])
    boxes[name].addEventListener("change", () => {
      move(name, Number(boxes[name].value));
      boxes[name].value = model.get(name).toFixed(1);
      model.save_changes();
    });
  for (const handle of handles) {
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      handle.onpointermove = (e) => {
        const box = stage.getBoundingClientRect();
        move(handle.dataset.end, ((e.clientX - box.left) / box.width) * model.get("seconds"));
      };
      event.preventDefault();
    });
    handle.addEventListener("pointerup", () => { handle.onpointermove = null; model.save_changes(); });
  }
  function silence() {
    audio?.pause();
    audio = null;
    hear.textContent = "Play the selection";
  }
  hear.addEventListener("click", () => (audio ? silence() : model.send({ type: "hear" })));
  const receive = (message, buffers) => {
    if (message.type !== "wav") return;
    silence();
    audio = new Audio(URL.createObjectURL(new Blob([buffers[0]], { type: "audio/wav" })));
    audio.onended = silence;
    audio.play().then(() => (hear.textContent = "Stop playing"), silence);
  };
  model.on("msg:custom", receive);
  const names = ["peaks", "seconds", "start", "end", "told", "kind", "trimmable"];
  for (const name of names) model.on(`change:${name}`, draw);
  const observer = new ResizeObserver(draw);
  observer.observe(stage);
  draw();
  return () => {
    observer.disconnect();
    silence();
    model.off("msg:custom", receive);
    for (const name of names) model.off(`change:${name}`, draw);
  };
}

export default { render };
