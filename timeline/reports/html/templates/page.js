'use strict';
(() => {
  const all = (query, of = document) => [...of.querySelectorAll(query)];
  for (const hidden of all('[hidden]')) hidden.hidden = false;

  // Tables: sort by a column, search in rows.
  const order = new Intl.Collator(undefined, {numeric: true});
  const number = (cell) => Number(cell.dataset.v ?? cell.textContent);
  const sort = (head, at) => {
    const falls = head.getAttribute('aria-sort') !== 'descending' && head.className === 'n' ||
      head.getAttribute('aria-sort') === 'ascending';
    const body = head.closest('table').tBodies[0];
    const compare = head.className === 'n' ?
      (a, b) => number(a.cells[at]) - number(b.cells[at]) :
      (a, b) => order.compare(a.cells[at].textContent, b.cells[at].textContent);
    const rows = [...body.rows].sort((a, b) => falls ? compare(b, a) : compare(a, b));
    for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', falls ? 'descending' : 'ascending');
    body.append(...rows);
  };
  for (const table of all('table')) {
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...head.childNodes);
      button.addEventListener('click', () => sort(head, at));
      head.append(button);
    });
  }
  for (const field of all('input[type=search]')) {
    const rows = [...document.getElementById(field.dataset.table).tBodies[0].rows];
    const status = field.closest('p').querySelector('[role=status]');
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
  }

  const spelled = (ns) => {
    for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
      if (ns >= size) return `${(ns / size).toPrecision(4)} ${unit}`;
    }
    return `${ns.toFixed(0)} ns`;
  };
  const unpacked = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;

  // Below a picture: what is under the pointer. tell: words for shares of its width and height.
  const read = (reading, tell) => {
    for (const svg of all('svg[data-name]', reading.parentNode)) {
      svg.addEventListener('pointermove', (event) => {
        const box = svg.getBoundingClientRect();
        const edges = svg.dataset;
        const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
        const y = (event.clientY - box.top) / box.height * svg.viewBox.baseVal.height;
        const across = (x - edges.left) / (edges.right - edges.left);
        const down = (y - edges.top) / (edges.bottom - edges.top);
        if (across >= 0 && across < 1) reading.textContent = tell(across, down);
      });
      svg.addEventListener('pointerleave', () => { reading.textContent = ''; });
    }
  };

  // Waits: read the pair, or the sum, under the pointer.
  const waitSource = document.getElementById('waits-data');
  if (waitSource) {
    const {rows, columns, values} = JSON.parse(waitSource.textContent);
    const waited = new Float32Array(unpacked(values));
    read(document.querySelector('.reading[data-of=waits]'), (across, down) => {
      const row = rows.length > 1 || rows[0] ? Math.floor(down * rows.length) : 0;
      if (!(row >= 0 && row < rows.length)) return '';
      const column = Math.floor(across * columns.length);
      const whom = columns[column] === '?' ? 'a rank that is not known' : `rank ${columns[column]}`;
      return `${rows[row] || 'others'} waited ${spelled(waited[row * columns.length + column])} for ${whom}`;
    });
  }

  // Steps: draw the chosen rank, and read the step under the pointer.
  const source = document.getElementById('data');
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const values = new Uint16Array(unpacked(data.values));
  const columns = data.labels.length;
  const choice = document.getElementById('rank');
  const parts = Object.fromEntries(data.parts);
  const phases = {marked_ns: 'step', fp_bp_ns: 'fp-bp', tail_ns: 'tail', interval_ns: 'interval'};
  const words = {alone_ns: 'computing alone', overlapped_ns: 'overlapped', waiting_ns: 'waiting', transfer_ns: 'transfer', unsplit_ns: parts.unsplit_ns === 'exposed' ? 'exposed communication' : 'waiting or transfer', copies_ns: 'copies', idle_ns: 'idle',
    marked_ns: 'step', fp_bp_ns: 'FP/BP', tail_ns: 'tail', interval_ns: 'interval'};
  const at = () => choice ? choice.selectedIndex : 0;
  const series = (name) => {
    const place = data.series.indexOf(name);
    const start = (at() * data.series.length + place) * columns;
    return place < 0 ? null : values.subarray(start, start + columns);
  };
  const given = (value) => value === data.absent ? 0 : value;
  const path = (id, line) => {
    const drawn = document.querySelector(`[id="${id}"] path`);
    if (drawn) drawn.setAttribute('d', line);
  };
  const redraw = (chart, size) => {
    const svg = document.querySelector(`.${size} > svg[data-name="${chart}"]`);
    if (!svg) return;
    const {left, right, bottom, quantum} = svg.dataset;
    const gap = Number(svg.dataset.gap);
    const wide = (right - left) / columns;
    const x = (step) => (Number(left) + step * wide).toFixed(1);
    const y = (value) => (bottom - value * quantum).toFixed(1);
    if (chart === 'parts') {
      const tops = new Float64Array(columns);
      for (const [name, role] of Object.entries(parts)) {
        const own = series(name);
        let line = '';
        for (let step = 0; step < columns; step++) {
          tops[step] += own ? given(own[step]) : 0;
          line += line ? (gap ? `H${x(step + gap)}` : '') : `M${x(gap)} ${y(0)}`;
          line += `V${y(tops[step])}H${x(step + 1 - gap)}`;
          if (gap || step === columns - 1) line += `V${y(0)}`;
        }
        path(`parts-${size}-part-${role}`, line);
      }
      return;
    }
    for (const [name, role] of Object.entries(phases)) {
      const own = series(name);
      let line = '';
      let pen = 'M';
      for (let step = 0; own && step < columns; step++) {
        const none = own[step] === data.absent;
        if (!none) line += `${pen}${x(step + .5)} ${y(own[step])}`;
        pen = none ? 'M' : 'L';
      }
      path(`curves-${size}-phase-${role}`, line);
    }
  };
  const choose = () => {
    for (const chart of ['parts', 'curves']) for (const size of ['wide', 'narrow']) redraw(chart, size);
    for (const own of all('[data-rank]')) own.textContent = data.ranks[at()];
    for (const own of all('[data-first]')) own.hidden = data.ranks[at()] !== Number(own.dataset.first);
  };
  if (choice) choice.addEventListener('change', choose);
  for (const reading of all('.reading[data-of=parts], .reading[data-of=curves]')) {
    const names = Object.keys(reading.dataset.of === 'parts' ? parts : phases);
    read(reading, (across) => {
      const step = Math.floor(across * columns);
      return `step ${data.labels[step]}: ` + names
        .filter((name) => series(name) && series(name)[step] !== data.absent)
        .map((name) => `${words[name]} ${spelled(series(name)[step] * data.quantum_ns)}`).join(', ');
    });
  }
})();
