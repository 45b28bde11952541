// What a page does by itself: tables sort, marks tell their numbers, a mixer is lit everywhere at once.
'use strict';

// Rows without a number stay last, in either direction.
function sortBy(table, column, falls) {
  const key = row => row.cells[column].dataset.n;
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const x = key(a), y = key(b);
    if ((x === undefined) !== (y === undefined)) return x === undefined ? 1 : -1;
    const order = x === undefined
      ? a.cells[column].textContent.localeCompare(b.cells[column].textContent, 'en', {numeric: true})
      : Number(x) - Number(y);
    return falls ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll('table.sorts')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector('button').addEventListener('click', () => {
    const falls = head.getAttribute('aria-sort') === 'ascending';
    for (const other of heads) other.removeAttribute('aria-sort');
    head.setAttribute('aria-sort', falls ? 'descending' : 'ascending');
    sortBy(table, column, falls);
  }));
}

// The titles of marks at the pointer or the focus: at once, and on touch screens too.
const tip = document.getElementById('tip');

function showTip(mark) {
  tip.textContent = mark.dataset.tip;
  tip.hidden = false;
  const at = mark.getBoundingClientRect(), box = tip.getBoundingClientRect();
  const x = Math.min(Math.max(4, at.left + at.width / 2 - box.width / 2), innerWidth - box.width - 4);
  tip.style.left = x + 'px';
  tip.style.top = (at.top > box.height + 10 ? at.top - box.height - 6 : at.bottom + 6) + 'px';
}

for (const title of document.querySelectorAll('svg title')) {
  const mark = title.parentNode;
  mark.dataset.tip = title.textContent;
  mark.setAttribute('aria-label', title.textContent);
  title.remove();
  mark.addEventListener('pointerenter', () => showTip(mark));
  mark.addEventListener('focus', () => showTip(mark));
  for (const event of ['pointerleave', 'blur']) mark.addEventListener(event, () => { tip.hidden = true; });
}

// A row of a table and the lines of its mixer share data-key: one lights the others.
const keyed = [...document.querySelectorAll('[data-key]')];

function light(key) {
  document.body.classList.toggle('lights', key !== null);
  for (const element of keyed) element.classList.toggle('lit', element.dataset.key === key);
}

for (const element of keyed) {
  for (const event of ['pointerenter', 'focusin']) element.addEventListener(event, () => light(element.dataset.key));
  for (const event of ['pointerleave', 'focusout']) element.addEventListener(event, () => light(null));
}
