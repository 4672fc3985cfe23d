// The one status line, with progress and a folded traceback.
// Traits in: kind, text, detail, state, ended (jobs so far), part (0..1, -1 is unknown), figures.

function render({ model, el }) {
  el.classList.add("bl-board");
  el.innerHTML = `
    <div class="bl-progress"><progress max="1" aria-label="Sound made so far"></progress><span class="bl-figures"></span></div>
    <div class="bl-status"><span class="bl-mark" aria-hidden="true"></span><span class="bl-text" role="status"></span></div>
    <details><summary>Details of the error</summary><pre tabindex="0"></pre></details>`;
  const [progress, figures, status, text, mark] = ["progress", ".bl-figures", ".bl-status", ".bl-text", ".bl-mark"].map((s) => el.querySelector(s));
  const [details, pre, bar] = ["details", "pre", ".bl-progress"].map((s) => el.querySelector(s));
  const marks = { info: "•", ok: "✓", warn: "!", error: "✕" };

  function draw() {
    const kind = model.get("kind");
    el.dataset.state = model.get("state");
    el.dataset.kind = kind;
    el.dataset.ended = model.get("ended");
    status.className = `bl-status bl-${kind}`;
    mark.textContent = marks[kind];
    if (text.textContent !== model.get("text")) text.textContent = model.get("text");
    details.hidden = !model.get("detail");
    pre.textContent = model.get("detail");
    if (!model.get("detail")) details.open = false;
    const part = model.get("part");
    const working = ["loading", "working"].includes(model.get("state"));
    bar.hidden = part < 0 && !working;
    if (part < 0) progress.removeAttribute("value");
    else progress.value = part;
    figures.textContent = model.get("figures");
  }
  const names = ["kind", "text", "detail", "state", "ended", "part", "figures"];
  for (const name of names) model.on(`change:${name}`, draw);
  draw();
  return () => { for (const name of names) model.off(`change:${name}`, draw); };
}

export default { render };
