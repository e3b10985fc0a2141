// A brush for masks. The canvas has the picture's pixels; what is painted is made anew.

export class Mask {
  constructor(canvas, pen, brush, erase) {
    this.pen = pen;
    this.canvas = canvas;
    this.brush = brush;
    this.erase = erase;
    this.place = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.place = this.placeOf(event);
      this.paint(this.place);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) this.paint(this.placeOf(event));
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Begins anew for a picture of this size. */
  reset(width, height) {
    this.canvas.width = width;
    this.canvas.height = height;
    this.place = { x: width / 2, y: height / 2 };
    this.isEmpty = true;
    this.point();
  }

  placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: ((event.clientX - box.left) * this.canvas.width) / box.width,
      y: ((event.clientY - box.top) * this.canvas.height) / box.height,
    };
  }

  width() {
    return (Number(this.brush.value) / 100) * Math.max(this.canvas.width, this.canvas.height);
  }

  paint(to) {
    const pen = this.canvas.getContext("2d");
    pen.globalCompositeOperation = this.erase.checked ? "destination-out" : "source-over";
    pen.strokeStyle = "rgb(220 30 90)";
    pen.lineWidth = this.width();
    pen.lineCap = "round";
    pen.beginPath();
    pen.moveTo(this.place.x, this.place.y);
    pen.lineTo(to.x + 0.01, to.y);
    pen.stroke();
    this.place = to;
    this.point();
    this.isEmpty = false;
  }

  key(event) {
    const step = this.width() / 2;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    const move = moves[event.key];
    if (!move && event.key !== " ") return;
    event.preventDefault();
    const within = (value, most) => Math.min(Math.max(value, 0), most);
    const { x, y } = this.place;
    const [right, down] = move ?? [0, 0];
    const to = { x: within(x + right, this.canvas.width), y: within(y + down, this.canvas.height) };
    if (event.key === " " || event.shiftKey) this.paint(to);
    this.place = to;
    this.point();
  }

  /** Shows where the brush is, for those who move it by the keyboard. */
  point() {
    this.pen.style.left = `${(100 * this.place.x) / this.canvas.width}%`;
    this.pen.style.top = `${(100 * this.place.y) / this.canvas.height}%`;
  }

  /** A picture that is transparent where it was painted: the mask of OpenAI's interface. */
  transparent() {
    return this.file((pen, fill) => {
      fill("black");
      pen.globalCompositeOperation = "destination-out";
      pen.drawImage(this.canvas, 0, 0);
    });
  }

  /** A picture that is white where it was painted, and black elsewhere. */
  white() {
    return this.file((pen, fill) => {
      pen.drawImage(this.canvas, 0, 0);
      pen.globalCompositeOperation = "source-in";
      fill("white");
      pen.globalCompositeOperation = "destination-over";
      fill("black");
    });
  }

  file(draw) {
    const canvas = document.createElement("canvas");
    canvas.width = this.canvas.width;
    canvas.height = this.canvas.height;
    const pen = canvas.getContext("2d");
    draw(pen, (colour) => {
      pen.fillStyle = colour;
      pen.fillRect(0, 0, canvas.width, canvas.height);
    });
    return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  }
}
