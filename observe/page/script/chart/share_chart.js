// ShareChart: draws shares of a whole over time as stacked areas. The figures are lists of shares from 0 to 1, which a
// card passes in (`shares` of observe/page/run_data.h).

// A layer is {name, colour, values}; x has the right end of each column.
class ShareChart extends Plot {
  constructor(host, group, options) {
    super(host, group, {unit: Units.share, ...options});
    this.x = [];
    this.layers = [];
  }

  set(x, layers) {
    this.x = x;
    this.layers = layers;
    this.draw();
  }

  draw() {
    if (this.area.hidden || this.area.clientWidth === 0 || this.x.length === 0) return;
    const last = this.x[this.x.length - 1];
    const context = this.begin(this.group.zoom || [0, last > 0 ? last : 1], [0, 1]);
    this.x.forEach((x, i) => {
      // The edges are whole pixels, so that there are no seams between columns.
      const left = Math.round(this.pixelOf(i > 0 ? this.x[i - 1] : 0));
      const right = Math.round(this.pixelOf(x));
      let bottom = 0;
      for (const layer of this.layers) {
        const top = Math.min(1, bottom + layer.values[i]);
        const y = this.heightOf(top);
        context.fillStyle = layer.colour;
        context.fillRect(left, y, right - left, this.heightOf(bottom) - y);
        bottom = top;
      }
    });
    context.restore();
    const shares = this.layers.map(({name, values}) => {
      return `${name} ${Text.percent(values[values.length - 1])}`;
    });
    this.canvas.setAttribute('aria-label', `${this.label}: ${shares.join(', ')}`);
    this.drawPointer();
  }

  drawPointer() {
    if (!this.pointerContext()) return;
    const i = Math.min(this.x.length - 1, indexBelow(this.x, this.group.at) + 1);
    const kLeastShare = 0.005;
    const shown = this.layers.filter((layer) => layer.values[i] >= kLeastShare).reverse();
    this.showTip(shown.map((layer) => {
      return [layer.colour, layer.name, Text.percent(layer.values[i])];
    }));
  }
}
