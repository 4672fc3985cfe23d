// A labelled text box with a note below, and chips that insert a word at the cursor.
// Traits: label, value, placeholder, rows, chips, chips_label, note, kind, disabled.

function render({ model, el }) {
  el.classList.add("bl-prose");
  const id = `bl-prose-${Math.random().toString(36).slice(2)}`;
  const label = Object.assign(document.createElement("label"), { htmlFor: id, textContent: model.get("label"), className: "bl-label" });
  const box = Object.assign(document.createElement("textarea"), { id, rows: model.get("rows"), placeholder: model.get("placeholder"), spellcheck: true });
  box.setAttribute("aria-describedby", `${id}-note`);
  const note = Object.assign(document.createElement("p"), { id: `${id}-note`, className: "bl-hint" });
  el.append(label, box);
  const chips = model.get("chips");
  if (chips.length) {
    const row = Object.assign(document.createElement("div"), { className: "bl-chips" });
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", model.get("chips_label"));
    for (const word of chips) {
      const chip = Object.assign(document.createElement("button"), { type: "button", className: "bl-chip", textContent: word });
      chip.addEventListener("click", () => insert(word));
      row.append(chip);
    }
    el.append(row);
  }
  el.append(note);

  function insert(word) {
    const [from, to] = [box.selectionStart, box.selectionEnd];
    const before = box.value.slice(0, from);
    const after = box.value.slice(to);
    const left = before && !/\s$/.test(before) ? " " : "";
    const right = after && !/^[\s.,;:!?]/.test(after) ? " " : "";
    box.value = before + left + word + right + after;
    const at = (before + left + word + right).length;
    box.setSelectionRange(at, at);
    box.focus();
    push();
  }
  function push() {
    model.set("value", box.value);
    model.save_changes();
  }
  function pull() {
    if (box.value !== model.get("value")) box.value = model.get("value");
    note.textContent = model.get("note");
    note.className = `bl-hint bl-${model.get("kind")}`;
    note.hidden = !model.get("note");
    box.disabled = model.get("disabled");
    label.textContent = model.get("label");
  }
  box.addEventListener("input", push);
  box.addEventListener("keydown", (event) => event.stopPropagation()); // JupyterLab's own keys
  const names = ["value", "note", "kind", "disabled", "label"];
  for (const name of names) model.on(`change:${name}`, pull);
  pull();
  return () => { for (const name of names) model.off(`change:${name}`, pull); };
}

export default { render };
