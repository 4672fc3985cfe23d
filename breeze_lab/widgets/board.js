// The one status line, with progress and a folded traceback.
// Traits in: kind, text, detail, state, ended (jobs so far), part (0..1, -1 is unknown), figures, unsaved.
// Messages out: {type: "page", page, seconds}, while a job runs: how long this page may be silent from now on;
// {type: "here"} at first; {type: "settled", number}, the answer to the only one in: {type: "settle", number}.

const EVERY = 20; // s between two words; browsers let a page in the background speak once a minute
const SILENT = 150; // s
const ASKED = 60; // s, of a page that asks whether it shall go: what it says when it goes may get lost
const FROZEN = 86400; // s, of a page that the browser puts to sleep

const busy = (model) => ["loading", "working"].includes(model.get("state"));

function initialize({ model }) {
  const page = Math.random().toString(36).slice(2);
  const alone = Boolean(document.body.dataset.voila); // such a page has a kernel to itself, which goes with it
  let timer;
  function tell(seconds) {
    try {
      if (busy(model)) model.send({ type: "page", page, seconds });
    } catch {} // a page that Voila has cut off already
  }
  const watch = () => {
    clearInterval(timer);
    tell(SILENT);
    timer = busy(model) ? setInterval(tell, 1000 * EVERY, SILENT) : undefined;
  };
  const leave = () => alone && tell(0); // elsewhere the kernel stays, and the page may come back to it
  const asked = () => tell(ASKED);
  const freeze = () => tell(FROZEN);
  const settle = (message) => message.type === "settle" && model.send({ type: "settled", number: message.number });
  model.on("msg:custom", settle);
  model.send({ type: "here" });
  model.on("change:state", watch);
  window.addEventListener("bl-asked", asked); // by app.ipynb
  window.addEventListener("pagehide", leave);
  document.addEventListener("freeze", freeze);
  watch();
  return () => {
    clearInterval(timer);
    model.off("msg:custom", settle);
    model.off("change:state", watch);
    window.removeEventListener("bl-asked", asked);
    window.removeEventListener("pagehide", leave);
    document.removeEventListener("freeze", freeze);
  };
}

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
    el.dataset.unsaved = busy(model) || model.get("unsaved"); // app.ipynb asks before the page is left
    status.className = `bl-status bl-${kind}`;
    mark.textContent = marks[kind];
    if (text.textContent !== model.get("text")) text.textContent = model.get("text");
    details.hidden = !model.get("detail");
    pre.textContent = model.get("detail");
    if (!model.get("detail")) details.open = false;
    const part = model.get("part");
    bar.hidden = part < 0 && !busy(model);
    if (part < 0) progress.removeAttribute("value");
    else progress.value = part;
    figures.textContent = model.get("figures");
  }
  function handOn() {
    // The pressed button is about to be disabled, and would take the keyboard's place on the page with it.
    const [make, stop] = [".bl-primary", ".bl-stop"].map((s) => el.closest(".bl-studio")?.querySelector(s));
    const [from, to] = busy(model) ? [make, stop] : [stop, make];
    if (from && document.activeElement === from) to.focus();
  }
  const names = ["kind", "text", "detail", "state", "ended", "part", "figures", "unsaved"];
  for (const name of names) model.on(`change:${name}`, draw);
  model.on("change:state", handOn);
  draw();
  return () => {
    for (const name of names) model.off(`change:${name}`, draw);
    model.off("change:state", handOn);
  };
}

export default { initialize, render };
