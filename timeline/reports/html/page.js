'use strict';
(() => {
  const sections = JSON.parse(document.getElementById('data').textContent);
  const main = document.querySelector('main');

  // -- elements -----------------------------------------------------------------------------------

  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? '' : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ''));
    return element;
  };
  const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
  const shareBar = (share) => svg('svg', {'aria-hidden': 'true'}, svg('rect', {width: `${(100 * share).toFixed(1)}%`}));

  // -- numbers ------------------------------------------------------------------------------------

  const UNITS = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]];
  const SIZES = [['GB', 2 ** 30], ['MB', 2 ** 20], ['KB', 2 ** 10], ['B', 1]];
  const unitOf = (largest, units = UNITS) => units.find(([, size]) => largest >= size || size === 1);
  const digits = (value, count) => String(Number(value.toPrecision(count)));
  const spelled = (ns) => {
    const [unit, size] = unitOf(ns);
    return `${unit === 'ns' ? ns.toFixed(0) : (ns / size).toPrecision(4)} ${unit}`;
  };
  const decimal = (value, places) => {
    const [whole, part] = Math.abs(value).toFixed(places).split('.');
    const sign = value < 0 ? '\u2212' : '';
    return sign + whole.replace(/\B(?=(\d{3})+$)/g, '\u202f') + (part ? `.${part}` : '');
  };
  const percent = (share) => share > 0 && share < .0005 ? '<0.1%' : `${(100 * share).toFixed(1)}%`;
  const change = (share) => {
    if (typeof share === 'string') return share;
    return share ? `${share > 0 ? '+' : '\u2212'}${Math.abs(100 * share).toFixed(1)}%` : '–';
  };
  const unpacked = (text) => new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);

  // -- tables -------------------------------------------------------------------------------------

  const numberText = ({scale = 1, digits: places = 0, signed}, value) =>
    (signed && value > 0 ? '+' : '') + decimal(value / scale, places);
  const barOf = ({kind, most, change: both}, value) => {
    if (kind === 'share') return shareBar(Math.min(1, value));
    if (!most || (both && !value)) return null;
    const share = Math.abs(value) / most;
    if (!both) return shareBar(share);
    return svg('svg', {class: 'change', 'aria-hidden': 'true'}, svg('rect', {
      class: value > 0 ? 'worse' : 'better',
      x: `${(value < 0 ? 50 - 50 * share : 50).toFixed(1)}%`, width: `${(50 * share).toFixed(1)}%`,
    }));
  };
  const cellOf = (column, at) => {
    const value = column.values[at];
    if (column.kind === 'text') {
      const width = value.length > 46 ? ' long' : value.length > 22 ? ' middle' : '';
      return el('td', {class: `word${width}`, title: column.whole && column.whole[at]}, value || '–');
    }
    if (column.kind === 'command') return el('td', {}, value ? el('button', {type: 'button', class: 'copy', value, title: `Copy the command that opens it, to run in a terminal: ${value}`}, 'Copy') : '–');
    if (column.kind === 'labels') return el('td', {class: 'n'}, column.texts[at] || '–');
    if (value === null) return el('td', {class: 'n'}, '–');
    const text = column.kind === 'share' ? percent(value) :
      column.kind === 'relative' ? change(value) : numberText(column, value);
    return el('td', {class: 'n'}, text, barOf(column, value));
  };
  const order = new Intl.Collator(undefined, {numeric: true});
  const sortValue = (value) => value === null ? -Infinity : value === 'new' ? Infinity : value === 'gone' ? -1 : value;
  const tableOf = (block) => {
    const {name, caption, columns} = block;
    const rows = Array.from({length: block.rows}, (_, at) => el('tr', {}, columns.map((column) => cellOf(column, at))));
    const body = el('tbody', {}, rows);
    const heads = columns.map((column) => {
      const isText = column.kind === 'text' || column.kind === 'command';
      const button = el('button', {type: 'button'}, column.title);
      const head = el('th', {scope: 'col', class: isText ? null : 'n'}, button);
      button.addEventListener('click', () => {
        const sorted = head.getAttribute('aria-sort');
        const falls = isText ? sorted === 'ascending' : sorted !== 'descending';
        const {values} = column;
        const compare = isText ? (a, b) => order.compare(values[a], values[b]) :
          (a, b) => sortValue(values[a]) - sortValue(values[b]) || 0;
        const places = [...rows.keys()].sort((a, b) => falls ? compare(b, a) : compare(a, b));
        for (const other of heads) other.removeAttribute('aria-sort');
        head.setAttribute('aria-sort', falls ? 'descending' : 'ascending');
        body.append(...places.map((place) => rows[place]));
      });
      return head;
    });
    const table = el('table', {id: name}, el('caption', {class: 'away'}, caption), el('thead', {}, el('tr', {}, heads)), body);
    // The command of the row that was clicked, selected, and copied where that is allowed.
    const command = el('p', {class: 'next command', role: 'status'});
    body.addEventListener('click', ({target}) => {
      if (!target.matches('button.copy')) return;
      const code = el('code', {}, target.value), what = el('span', {}, 'Copy it, and run it in a terminal:');
      command.replaceChildren(what, ' ', code);
      getSelection().selectAllChildren(code);
      if (navigator.clipboard) navigator.clipboard.writeText(target.value).then(() => { what.textContent = 'Copied; run it in a terminal:'; }, () => {});
    });
    const shown = [
      el('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption}, table),
      columns.some((column) => column.kind === 'command') ? command : null,
      block.note ? el('p', {class: 'note'}, block.note) : null,
    ];
    if (block.rows > 12) shown.unshift(filterOf(name, rows, columns));
    if (!block.fold) return shown;
    return el('details', {open: block.opened}, el('summary', {}, caption), shown);
  };
  const filterOf = (name, rows, columns) => {
    const field = el('input', {type: 'search', 'data-table': name, autocomplete: 'off', spellcheck: 'false'});
    const status = el('span', {role: 'status'});
    field.addEventListener('input', () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = [...row.cells].map((cell) => cell.title || cell.textContent).join(' ').toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      status.textContent = words.length ? `${shown} of ${rows.length} rows` : '';
    });
    return el('p', {class: 'controls'}, el('label', {}, 'Filter ', field), ' ', status);
  };

  // -- charts: fills, axes, frames ----------------------------------------------------------------

  const HATCHES = {
    waiting: ['waiting-hatch', 45], exposed: ['exposed-hatch', 45], unsplit: ['unsplit-hatch', 90], between: ['between-hatch', -45],
  };
  const DASHES = {'fp-bp': '10 4', tail: '4 4', interval: '10 4 2 4', before: '10 4'};
  document.body.prepend(svg('svg', {class: 'patterns', width: 0, height: 0, 'aria-hidden': 'true'},
    Object.entries(HATCHES).map(([role, [ink, degrees]]) =>
      svg('pattern', {id: `hatch-${role}`, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: `rotate(${degrees})`},
        svg('rect', {width: 6, height: 6, fill: `var(--${role})`}),
        svg('path', {d: 'M3 0V6', stroke: `var(--${ink})`, fill: 'none'})))));
  const fillOf = (role) => HATCHES[role] ? `url(#hatch-${role})` : `var(--${role})`;
  const line = (role, d) => svg('path', {
    d, 'data-role': role, fill: 'none', stroke: `var(--${role})`, 'stroke-width': 1.8, 'stroke-linejoin': 'round', 'stroke-dasharray': DASHES[role],
  });
  const area = (role, d) => svg('path', {d, 'data-role': role, fill: fillOf(role)});
  const label = (x, y, text, {anchor = 'start', muted, fill: ink} = {}) =>
    svg('text', {x: x.toFixed(1), y: y.toFixed(1), 'text-anchor': anchor, class: muted ? 'muted' : null, fill: ink}, text);
  const rule = (d) => svg('path', {class: 'rule', d});

  const ticksUpTo = (low, high, most, wholes) => {
    const least = (high - low) / most || 1;
    const power = 10 ** Math.floor(Math.log10(least));
    let step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= least * .999);
    if (wholes) step = Math.max(1, Math.ceil(step));
    const ticks = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9); at++) ticks.push(at * step);
    return ticks;
  };
  // The positions of round ids, as many as have room.
  const roundPositions = (ids, most) => {
    for (let power = 1; power < 1e18; power *= 10) {
      for (const digit of [1, 2, 5]) {
        const places = [...ids.keys()].filter((at) => ids[at] % (digit * power) === 0);
        if (places.length <= Math.max(2, most)) return places.length ? places : [0];
      }
    }
    return [0];
  };
  // A drawing for a wide screen, a narrow one, and paper. draw: elements from a width; tell: words for a place.
  const figureOf = (block, height, draw, tell, legend) => {
    const reading = tell && el('p', {class: 'reading', 'data-of': block.name, 'aria-hidden': 'true'});
    const pictures = Object.entries({wide: Math.max(720, main.clientWidth), narrow: 360, paper: 880}).map(([size, width]) => {
      const {edges, parts} = draw(width);
      const picture = svg('svg', {
        viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': block.label, 'data-name': block.name,
      }, parts);
      for (const [name, value] of Object.entries(edges)) picture.dataset[name] = value;
      if (tell) {
        picture.addEventListener('pointermove', (event) => {
          const box = picture.getBoundingClientRect();
          const across = ((event.clientX - box.left) / box.width * width - edges.left) / (edges.right - edges.left);
          const down = ((event.clientY - box.top) / box.height * height - edges.top) / (edges.bottom - edges.top);
          const inside = across >= 0 && across < 1 && down >= 0 && down < 1;
          reading.textContent = inside ? tell(across, down) : '';
        });
        picture.addEventListener('pointerleave', () => { reading.textContent = ''; });
      }
      return el('div', {class: size}, picture);
    });
    return el('figure', {class: block.class}, legend, pictures, reading);
  };
  const legendOf = (keys) => keys.length ? el('ul', {class: 'legend'}, keys.map(({role, label: text, stroke}) =>
    el('li', {}, stroke ?
      svg('svg', {width: 26, height: 12, 'aria-hidden': 'true'}, line(role, 'M0 6H26')) :
      svg('svg', {width: 16, height: 12, 'aria-hidden': 'true'}, svg('rect', {width: 16, height: 12, rx: 2, fill: fillOf(role)})), text))) : null;
  const columnLabels = (ids, labels, noun, {left, right, bottom}) => {
    const most = Math.floor((right - left) / (24 + 7 * Math.max(...labels.map((text) => text.length))));
    const wide = (right - left) / ids.length;
    return [
      roundPositions(ids, most).map((at) => label(left + (at + .5) * wide, bottom + 15, labels[at], {anchor: 'middle', muted: true})),
      label(right, bottom + 32, noun, {anchor: 'end', muted: true}),
    ];
  };

  // -- charts over columns: stacks, lines, bands, stairs ------------------------------------------

  const AXES = {left: 52, top: 24, right: 12, bottom: 40};
  const plotOf = (block) => {
    const {ids, labels, layers, height} = block;
    const isTime = !block.unit;
    const top = (block.most || 1) * (block.unit === 'bytes' ? 1.08 : 1.04);
    const bottomValue = block.unit === 'batches' ? -.02 * top : 0;
    const [unit, size] = isTime ? unitOf(block.most) : block.unit === 'bytes' ? unitOf(block.most, SIZES) : [block.unit, 1];
    const numbered = layers.filter((layer) => layer.at && layer.values);
    const first = Math.min(...numbered.map((layer) => layer.at[0]));
    const last = Math.max(...numbered.map((layer) => layer.at[layer.at.length - 1]));
    const lengthAt = (at) => Math.max(...layers.map((layer) => (layer.is === 'stack' ? layer.parts : layer.is === 'line' ? [layer] : [])
      .map(({values}) => values[at]).filter(isGiven).reduce((sum, value) => sum + value, 0)));
    const draw = (width) => {
      const edges = {left: AXES.left, right: width - AXES.right, top: AXES.top, bottom: height - AXES.bottom};
      const {left, right, bottom} = edges;
      const wide = (right - left) / (ids.length || 1);
      const y = (value) => (bottom - (value - bottomValue) / (top - bottomValue) * (bottom - edges.top)).toFixed(1);
      const x = numbered.length ?
        (at) => (left + (at - first) / (last - first || 1) * (right - left)).toFixed(1) :
        (at) => (left + (at + .5) * wide).toFixed(1);
      const parts = ticksUpTo(0, top / size, 5, block.unit === 'batches').map((value) => [
        rule(`M${left} ${y(value * size)}H${right}`),
        label(left - 6, Number(y(value * size)) + 4, digits(value, 6), {anchor: 'end', muted: true}),
      ]);
      // Columns that are longer than the axis are cut off at its top, with their lengths above.
      let free = 0;
      const cut = ids.map((_, at) => [Number(x(at)), lengthAt(at)]).filter(([, value]) => value > top).map(([middle, value]) => {
        const last = middle > right - 70, from = middle - (last ? 70 : 0);
        if (from < free) return label(middle, 16, '↑', {anchor: 'middle'});
        free = from + 75;
        return label(middle + (last ? 4 : -4), 16, last ? `${spelled(value)} ↑` : `↑ ${spelled(value)}`, {anchor: last ? 'end' : 'start'});
      });
      const above = cut.length ? edges.top : 0, high = bottom + (numbered.length ? 2 : 0) - above;
      const clip = svg('svg', {x: 0, y: above, width, height: high, viewBox: `0 ${above} ${width} ${high}`}, layers.map((layer) => drawLayer(layer, {x, y, wide, left, right, bottom, size})));
      const axis = numbered.length ? [
        ticksUpTo(first, last, 8, true).map((value) => label(Number(x(value)), bottom + 15, String(value), {anchor: 'middle', muted: true})),
        label(right, bottom + 32, block.noun, {anchor: 'end', muted: true}),
      ] : columnLabels(ids, labels, block.noun, edges);
      return {edges, parts: [parts, label(left - 6, 14, unit, {anchor: 'end', muted: true}), cut, clip, rule(`M${left} ${bottom}H${right}`), axis]};
    };
    const keys = layers.flatMap((layer) => layer.is === 'stack' ? layer.parts : [{...layer, stroke: layer.is === 'line'}]);
    const named = keys.filter((key) => key.label).sort((a, b) => Boolean(b.stroke) - Boolean(a.stroke));
    const tell = block.says && ((across) => {
      const at = Math.floor(across * ids.length);
      const say = block.says.replace('{column}', labels[at]);
      const values = keys.filter((key) => key.values && key.values[at] !== null && !Number.isNaN(key.values[at]));
      if (say.includes('{value}')) return say.replace('{value}', spelled(values[0].values[at]));
      return say + values.map((key) => `${key.label} ${spelled(key.values[at])}`).join(', ');
    });
    return figureOf(block, height, draw, tell, legendOf(named));
  };
  const isGiven = (value) => value !== null && value !== undefined && !Number.isNaN(value);
  const lineOf = (values, places, {x, y}, stepped) => {
    let d = '', pen = 'M';
    values.forEach((value, at) => {
      if (!isGiven(value)) { pen = 'M'; return; }
      d += stepped && pen === 'L' ? `H${x(places[at])}V${y(value)}` : `${pen}${x(places[at])} ${y(value)}`;
      pen = 'L';
    });
    return d;
  };
  const drawLayer = (layer, axes) => {
    const {x, y, wide, left, right, bottom} = axes;
    const edge = (at) => (left + at * wide).toFixed(1);
    if (layer.is === 'stack') {
      const count = layer.parts.length ? layer.parts[0].values.length : 0;
      const gap = count <= 60 ? .1 : 0;
      const tops = new Float64Array(count);
      return layer.parts.map(({role, values}) => {
        let d = '';
        for (let at = 0; at < count; at++) {
          const under = tops[at];
          tops[at] += Math.max(0, isGiven(values[at]) ? values[at] : 0);
          if (tops[at] > under) d += `M${edge(at + gap)} ${y(under)}V${y(tops[at])}H${edge(at + 1 - gap)}V${y(under)}Z`;
        }
        return area(role, d);
      });
    }
    const count = (layer.values || layer.low || []).length;
    const places = layer.at && layer.at.length ? layer.at : [...Array(count).keys()];
    if (layer.is === 'line') {
      const few = layer.role === 'before' || layer.role === 'now' ? count <= 40 : count === 1;
      const dots = few ? layer.values.map((value, at) => isGiven(value) ? svg('circle', {cx: x(places[at]), cy: y(value), r: 2.2, fill: `var(--${layer.role})`}) : null) : [];
      return [line(layer.role, lineOf(layer.values, places, axes, layer.stepped)), dots];
    }
    if (layer.is === 'band') {
      const there = [...places.keys()].filter((at) => isGiven(layer.low[at]) && isGiven(layer.high[at]));
      const own = there.map((at) => places[at]);
      const upper = lineOf(there.map((at) => layer.high[at]), own, axes, layer.stepped);
      const back = [...own.keys()].reverse();
      const lower = back.map((at, index) =>
        `${layer.stepped && index ? `V${y(layer.low[there[at]])}H${x(own[at])}` : `L${x(own[at])} ${y(layer.low[there[at]])}`}`).join('');
      return own.length ? area('band', `${upper}${lower}Z`) : null;
    }
    if (layer.is === 'stairs') {
      let d = `M${edge(0)} ${y(layer.values[0])}`;
      layer.values.forEach((value, at) => { d += `V${y(value)}H${edge(at + 1)}`; });
      return [area('band', `${d}V${bottom}H${edge(0)}Z`), line('operator', d)];
    }
    if (layer.is === 'level') return layer.at ? svg('path', {d: `M${left} ${y(layer.at)}H${right}`, stroke: 'var(--muted)', 'stroke-dasharray': '2 2'}) : null;
    if (layer.is === 'marks') {
      return layer.marks.map(({at, label: text}) => {
        const late = Number(x(at)) * 2 > left + right;
        return [svg('path', {d: `M${x(at)} ${bottom}V24`, stroke: 'var(--ink)', 'stroke-dasharray': '6 2'}),
          label(Number(x(at)) + (late ? -4 : 4), bottom - 6, text, {anchor: late ? 'end' : 'start'})];
      });
    }
    return svg('circle', {cx: x(layer.at), cy: y(layer.value), r: 3, fill: 'var(--exposed)'});
  };

  // -- other charts -------------------------------------------------------------------------------

  const barsOf = (block) => {
    const {rows, parts, of} = block;
    const height = 26 * rows.length + 46;
    const sums = rows.map((_, row) => parts.reduce((sum, part) => sum + part.values[row], 0));
    const most = Math.max(1, ...sums);
    const [unit, size] = unitOf(most);
    const draw = (width) => {
      const edges = {left: 12 + 7 * Math.max(...rows.map((name) => name.length)), right: width - 12, top: 4, bottom: height - 40};
      const {left, right, top, bottom} = edges;
      const x = (value) => left + value / most * (right - left);
      const grid = ticksUpTo(0, most / size, 6).map((value) => [
        rule(`M${x(value * size).toFixed(1)} ${top}V${bottom}`),
        label(x(value * size), bottom + 15, digits(value, 6), {anchor: 'middle', muted: true}),
      ]);
      const least = 34 / (right - left) * most;
      const bars = rows.map((name, row) => {
        let start = 0;
        const middle = top + (row + .5) * (bottom - top) / rows.length;
        return [label(left - 6, middle + 4, name, {anchor: 'end', muted: true}), parts.map(({role, values}) => {
          const value = values[row], at = start;
          start += value;
          const bar = svg('rect', {'data-role': role, x: x(at).toFixed(1), y: (middle - 9.4).toFixed(1), width: (value / most * (right - left)).toFixed(1), height: 18.8, fill: fillOf(role)});
          if (value < least || !of[row]) return bar;
          const text = label(x(at + value / 2), middle + 4, `${(100 * value / of[row]).toFixed(0)}%`, {anchor: 'middle'});
          text.style.fill = `var(--on-${role})`;
          return [bar, text];
        })];
      });
      return {edges, parts: [grid, bars, rule(`M${left} ${bottom}H${right}`), label(right, bottom + 32, unit, {anchor: 'end', muted: true})]};
    };
    return figureOf(block, height, draw, null, legendOf(parts));
  };

  // The colours of cividis.
  const CIVIDIS = ['00224e', '123570', '3b496c', '575d6d', '707173', '8a8678', 'a59c74', 'c3b369', 'e1cc55', 'fee838']
    .map((colour) => [0, 2, 4].map((at) => parseInt(colour.slice(at, at + 2), 16)));
  const heatColour = (share) => {
    const place = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
    const at = Math.min(Math.floor(place), CIVIDIS.length - 2);
    return CIVIDIS[at].map((low, channel) => Math.round(low + (CIVIDIS[at + 1][channel] - low) * (place - at)));
  };
  const imageOf = (columns, rows, colourAt) => {
    const canvas = document.createElement('canvas');
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext('2d');
    const pixels = context.createImageData(columns, rows);
    for (let at = 0; at < columns * rows; at++) {
      const colour = colourAt(at);
      if (colour) pixels.data.set([...colour, 255], 4 * at);
    }
    context.putImageData(pixels, 0, 0);
    return canvas.toDataURL();
  };
  const luminance = (colour) => {
    const [red, green, blue] = colour.map((value) => value / 255).map((value) => value <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4);
    return .2126 * red + .7152 * green + .0722 * blue;
  };
  const heatOf = (block) => {
    const {row_ids: ranks, ids, labels, low, high} = block;
    const values = unpacked(block.values);
    const [unit, size] = block.unit ? [block.unit, 1] : unitOf(high);
    const height = Math.min(block.most_px, Math.max(3, ranks.length) * block.row_px) + 90;
    const shareOf = (value) => high > low ? (value - low) / (high - low) : 0;
    const map = imageOf(ids.length, ranks.length, (at) => isGiven(values[at]) ? heatColour(shareOf(values[at])) : null);
    const ramp = imageOf(128, 1, (at) => heatColour(at / 127));
    const names = ranks.map((rank) => `rank ${rank}`);
    // Enough digits to tell ten steps of the scale apart, in five characters at most.
    const room = 4 - (high / size).toFixed(0).length;
    const places = Math.max(0, Math.min(room, [0, 1, 2, 3].find((at) => (high - low) / size * 10 ** at >= 10) ?? 3));
    const draw = (width) => {
      const edges = {left: 14 + 7 * Math.max(...names.map((name) => name.length)), right: width - 12, top: 50, bottom: height - 40};
      const {left, right, top, bottom} = edges;
      const wide = (right - left) / ids.length, tall = (bottom - top) / ranks.length;
      const long = Math.min(right - left, .35 * width);
      const image = (href, x, y, w, h) => svg('image', {href, x, y, width: w, height: h, preserveAspectRatio: 'none'});
      const scale = [image(ramp, left, 6, long, 9), label(left + long + 6, 15, unit, {}),
        ticksUpTo(low / size, high / size, 4).map((value) =>
          label(left + shareOf(value * size) * long, 29, digits(value, 6), {anchor: 'middle', muted: true}))];
      const rows = roundPositions(ranks, Math.floor((bottom - top) / 20)).map((row) =>
        label(left - 6, top + (row + .5) * tall + 4, names[row], {anchor: 'end', muted: true}));
      const numbers = wide < 40 || tall < 16 ? [] : [...values.keys()].filter((at) => isGiven(values[at])).map((at) => {
        const text = label(left + (at % ids.length + .5) * wide, top + (Math.floor(at / ids.length) + .5) * tall + 4, (values[at] / size).toFixed(places), {anchor: 'middle'});
        text.style.fill = luminance(heatColour(shareOf(values[at]))) > .179 ? '#0a0a0a' : '#fcfcfc';
        return text;
      });
      return {edges, parts: [scale, image(map, left, top, right - left, bottom - top), rows, numbers, columnLabels(ids, labels, block.noun, edges)]};
    };
    const tell = (across, down) => {
      const row = Math.floor(down * ranks.length), column = Math.floor(across * ids.length);
      const value = values[row * ids.length + column];
      if (!isGiven(value)) return '';
      const text = block.unit ? `${value.toFixed(1)}${block.unit}` : spelled(value);
      return block.says.replace('{row}', ranks[row]).replace('{column}', labels[column]).replace('{value}', text);
    };
    return figureOf(block, height, draw, tell);
  };

  // A map of all ranks: rows of boxes of cells, coloured by the measure that is chosen.
  const rankMapOf = ({ranks, rows, found, measures, shown}) => {
    const values = measures.map((measure) => unpacked(measure.values));
    const size = ranks.length <= 16 ? 'large' : ranks.length <= 256 ? 'middle' : 'small';
    const named = new Map(rows.flatMap((row) => row.boxes.flatMap((box) =>
      box.cells.map((at) => [at, [row.label, box.label].filter((text) => /[A-Z]/.test(text)).join(', ')]))));
    const cells = ranks.map((rank, at) => {
      const told = measures.map(({label: name}, measure) => isGiven(values[measure][at]) ? `, ${name.toLowerCase()} ${spelled(values[measure][at])}` : '');
      const place = named.get(at) ? ` (${named.get(at)})` : '';
      return el('i', {class: found[rank] ? 'found' : null, title: `rank ${rank}${place}${told.join('')}${found[rank] ? `, ${found[rank]}` : ''}`});
    });
    const scale = el('p', {class: 'scale'}), meaning = el('p', {class: 'note'});
    const ramp = imageOf(128, 1, (at) => heatColour(at / 127));
    const show = (chosen) => {
      const {low, high, note} = measures[chosen];
      meaning.textContent = note;
      const [unit, length] = unitOf(high);
      const places = [10, 100].filter((least) => high / length < least).length;
      cells.forEach((cell, at) => {
        const value = values[chosen][at];
        const colour = isGiven(value) ? heatColour(high > low ? (value - low) / (high - low) : 1) : null;
        cell.style.background = colour ? `rgb(${colour})` : '';
        cell.style.color = colour && luminance(colour) <= .179 ? '#fcfcfc' : colour ? '#0a0a0a' : '';
        cell.replaceChildren(...size === 'small' ? [] : [el('small', {}, String(ranks[at]))],
          ...size === 'large' && colour ? [(value / length).toFixed(places)] : []);
      });
      const ringed = Object.keys(found);
      scale.replaceChildren((low / length).toFixed(places), svg('svg', {width: 160, height: 9, 'aria-hidden': 'true'}, svg('image', {href: ramp, width: 160, height: 9, preserveAspectRatio: 'none'})), `${(high / length).toFixed(places)} ${unit}`,
        ringed.length ? el('span', {}, el('i', {class: 'found'}), ` rank ${ringed.slice(0, 8).join(', ')}${ringed.length > 8 ? ` and ${ringed.length - 8} more` : ''}: ${found[ringed[0]]}`) : '');
    };
    const choices = measures.map(({label: name}, at) => {
      const choice = el('input', {type: 'radio', name: 'measure', value: name, checked: at === shown});
      choice.addEventListener('change', () => show(at));
      return el('label', {title: measures[at].note}, choice, name);
    });
    show(shown);
    return el('div', {class: `ranks ${size}`}, el('div', {class: 'switch'}, choices), scale, rows.map((row) =>
      el('div', {class: 'row'}, row.label ? el('span', {class: 'axis'}, row.label) : null, el('div', {class: 'boxes'}, row.boxes.map((box) =>
        el('div', {}, box.label && size !== 'small' ? el('span', {class: 'axis'}, box.label) : null, el('div', {class: 'cells'}, box.cells.map((at) => cells[at]))))))), meaning);
  };

  const ribbonsOf = (block) => {
    const height = 58 * block.rows.length + 40;
    const draw = (width) => {
      const edges = {left: 8, right: width - 12, top: 0, bottom: height - 40};
      const {left, right, bottom} = edges;
      const count = block.ids.length;
      const x = (at) => (left + at / Math.max(1, count - 1) * (right - left)).toFixed(1);
      const rows = block.rows.map(({name, least, most, values}, row) => {
        const base = 58 * (row + .92), largest = Math.max(1, ...values);
        const d = values.map((value, at) => `${at ? 'L' : 'M'}${x(at)} ${(base - 58 * .6 * value / largest).toFixed(1)}`).join('');
        const [unit, size] = unitOf(most);
        const [from, to] = [least, most].map((value) => digits(value / size, 3));
        return [area('under-operator', `${d}L${x(count - 1)} ${base}H${left}Z`),
          svg('path', {d, fill: 'none', stroke: 'var(--operator)', 'stroke-width': 1.4}),
          label(left, 58 * (row + .26), name),
          label(right, 58 * (row + .26), from === to ? `${to} ${unit}` : `${from} to ${to} ${unit}`, {anchor: 'end', muted: true})];
      });
      const labels = block.ids.map(String);
      const most = Math.floor((right - left) / (24 + 7 * Math.max(...labels.map((text) => text.length))));
      const ticks = roundPositions(block.ids, most).map((at) => label(Number(x(at)), bottom + 15, labels[at],
        {anchor: at === 0 ? 'start' : at === count - 1 ? 'end' : 'middle', muted: true}));
      return {edges, parts: [rows, rule(`M${left} ${bottom}H${right}`), ticks, label(right, bottom + 32, block.noun, {anchor: 'end', muted: true})]};
    };
    return figureOf(block, height, draw);
  };

  // -- blocks of several parts --------------------------------------------------------------------

  const stepsOf = (block) => {
    const values = unpacked(block.values);
    const {ranks, series, labels} = block;
    const many = block.of > 1;
    const rowOf = (at, place) => values.subarray((at * series.length + place) * labels.length, (at * series.length + place + 1) * labels.length);
    const resolved = (plot, at) => {
      const own = (layer) => layer.series === undefined ? layer : {...layer, values: [...rowOf(at, layer.series)]};
      return {...plot, layers: plot.layers.map((layer) => layer.is === 'stack' ? {...layer, parts: layer.parts.map(own)} : own(layer))};
    };
    const which = el('span'), parts = el('div'), curves = el('div');
    const show = (at) => {
      const why = block.why && ranks[at] === block.rank ? `, ${block.why}` : '';
      which.textContent = many ? `Rank ${ranks[at]}${why}; all ranks are drawn to one scale.` : '';
      if (block.parts) parts.replaceChildren(plotOf(resolved(block.parts, at)));
      curves.replaceChildren(plotOf(resolved(block.curves, at)));
    };
    const choice = el('select', {id: 'rank'}, ranks.map((rank) => el('option', {selected: rank === block.rank}, String(rank))));
    choice.addEventListener('change', () => show(choice.selectedIndex));
    show(ranks.indexOf(block.rank));
    const run = block.run > 1 ? ` Of each ${block.run} neighbouring steps the longest is drawn.` : '';
    const phases = block.phases > 1 ? ' FP/BP is forward and backward, tail what follows, interval the wait for data before the step.' : '';
    return [
      many || run ? el('p', {class: 'note'}, which, run) : null,
      many ? el('p', {class: 'controls'}, el('label', {}, 'Rank ', choice),
        ranks.length < block.of ? el('span', {class: 'note'}, `the ${ranks.length} slowest of ${block.of}`) : null) : null,
      block.beyond ? el('p', {class: 'note'}, block.beyond) : null,
      el('div', {class: 'beside'}, block.parts ? parts : null,
        el('div', {}, el('h3', {}, 'Step trace'), curves, el('p', {class: 'note'}, `As the profile marks them.${phases}`))),
    ];
  };
  const switchOf = ({charts}) => {
    const drawn = charts.map((chart) => el('div', {class: 'heat', id: `heat-${chart.name}`}, el('h3', {}, chart.label), heatOf(chart)));
    const choices = charts.map((chart, at) =>
      el('label', {}, el('input', {type: 'radio', name: 'heat', value: chart.name, checked: !at}), chart.label));
    return el('div', {class: 'switch beside'}, choices, drawn);
  };
  const treeOf = ({root}) => {
    const lineOfScope = (own) => [
      el('span', {class: 'name'}, own.name, own.note ? [' ', el('span', {class: 'aside'}, own.note)] : null),
      el('span', {class: 'n'}, own.flop, shareBar(own.share)), el('span', {class: 'n aside own'}, own.own),
    ];
    const scope = (own) => own.children.length ?
      el('details', {open: own.opened}, el('summary', {}, lineOfScope(own)), own.children.map(scope)) :
      el('div', {class: 'leaf'}, lineOfScope(own));
    return el('div', {class: 'tree', tabindex: 0, role: 'region', 'aria-label': 'Scopes'}, scope(root));
  };
  const pipelineOf = ({levels}) => el('ol', {class: 'pipeline'}, levels.map((level) => el('li', {}, level.map((box) =>
    el('div', {class: box.limit ? 'box limit' : 'box'}, el('strong', {}, box.name), box.workers ? el('span', {}, box.workers) : null,
      box.usage === null ? el('span', {}, 'no queue') :
        [el('span', {}, `queue ${(100 * box.usage).toFixed(0)}% full`), shareBar(Math.min(1, box.usage))],
      box.limit ? el('em', {}, box.limit) : null)))));
  const pieceOf = (piece) => typeof piece === 'string' ? piece :
    piece.code ? el('code', {}, piece.code) : el('a', {href: piece.link, rel: 'noreferrer'}, piece.text);
  const listOf = ({items}) => el('ul', {class: 'plain'}, items.map((item) =>
    el('li', {}, typeof item === 'string' ? item : item.map(pieceOf))));
  const BLOCKS = {
    note: ({text, class: own}) => el('p', {class: own ? `note ${own}` : 'note'}, text),
    heading: ({text, class: own}) => el('h3', {class: own}, text),
    list: listOf, table: tableOf, plot: plotOf, bars: barsOf, heat: heatOf, ranks: rankMapOf, ribbons: ribbonsOf,
    steps: stepsOf, switch: switchOf, tree: treeOf, pipeline: pipelineOf,
    beside: ({blocks}) => el('div', {class: 'beside'}, blocks.map(blockOf)),
    section: ({title, anchor, blocks}) => el('section', {id: anchor || null}, el('h2', {}, title), blocks.map(blockOf)),
  };
  const blockOf = (block) => BLOCKS[block.is](block);

  main.append(...sections.map(blockOf));
})();
