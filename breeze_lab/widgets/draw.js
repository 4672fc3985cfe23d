// Put before the parts that draw sound: a canvas made ready, and its bars.

function openCanvas(canvas) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return null;
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const style = getComputedStyle(canvas);
  return { pen, width, height, color: (name) => style.getPropertyValue(`--bl-${name}`) };
}

// `peak(part)` is 0..1 or null where there is nothing yet, `lit(part)` whether it is accented; part goes from 0 to 1.
function drawBars(canvas, step, peak, lit) {
  const open = openCanvas(canvas);
  if (!open) return;
  const { pen, width, height, color } = open;
  const [accent, faint] = [color("accent"), color("wave")];
  const bars = Math.floor(width / step);
  pen.fillStyle = color("line");
  pen.fillRect(0, height / 2 - 0.5, width, 1);
  for (let i = 0; i < bars; i++) {
    const value = peak(i / bars, (i + 1) / bars);
    if (value === null) break;
    const tall = Math.max(1.5, value * (height - 6));
    pen.fillStyle = lit(i / bars) ? accent : faint;
    pen.fillRect(i * step, (height - tall) / 2, step - 1, tall);
  }
}
