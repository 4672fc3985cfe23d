// A labelled text box with a note below, and chips that insert a word at the cursor; or, with rows 0, a number's box.
// Traits: label, value, placeholder, rows, chips, chips_label, note, kind, disabled; of a number: least, most, step.

function render({ model, el }) {
  el.classList.add("bl-prose");
  const id = `bl-prose-${Math.random().toString(36).slice(2)}`;
  const label = Object.assign(document.createElement("label"), { htmlFor: id, textContent: model.get("label"), className: "bl-label" });
  const box = Object.assign(document.createElement(model.get("rows") ? "textarea" : "input"), { id, placeholder: model.get("placeholder") });
  if (model.get("rows")) Object.assign(box, { rows: model.get("rows"), spellcheck: true });
  else Object.assign(box, { type: "number", min: model.get("least"), max: model.get("most"), step: model.get("step") });
  box.setAttribute("aria-describedby", `${id}-note`);
  const note = Object.assign(document.createElement("p"), { id: `${id}-note`, className: "bl-hint" });
  el.append(label, box);
  const chips = Object.assign(document.createElement("div"), { className: "bl-chips" });
  chips.setAttribute("role", "group");
  chips.setAttribute("aria-label", model.get("chips_label"));
  el.append(chips, note);

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
  const typed = () => (box.validity.badInput ? "?" : box.value); // a number's box hides what is none
  function push() {
    model.set("value", typed());
    model.save_changes();
  }
  function hang() {
    chips.hidden = !model.get("chips").length;
    chips.replaceChildren(
      ...model.get("chips").map((word) => {
        const chip = Object.assign(document.createElement("button"), { type: "button", className: "bl-chip", textContent: word });
        chip.addEventListener("click", () => insert(word));
        return chip;
      })
    );
  }
  function pull() {
    if (typed() !== model.get("value")) box.value = model.get("value");
    note.textContent = model.get("note");
    note.className = `bl-hint bl-${model.get("kind")}`;
    note.hidden = !model.get("note");
    if (!model.get("rows")) box.setAttribute("aria-invalid", model.get("kind") === "warn"); // its label says why
    box.disabled = model.get("disabled");
    label.textContent = model.get("label");
  }
  box.addEventListener("input", push);
  box.addEventListener("keydown", (event) => event.stopPropagation()); // JupyterLab's own keys
  const names = ["value", "note", "kind", "disabled", "label"];
  for (const name of names) model.on(`change:${name}`, pull);
  model.on("change:chips", hang);
  hang();
  pull();
  return () => {
    for (const name of names) model.off(`change:${name}`, pull);
    model.off("change:chips", hang);
  };
}

export default { render };
