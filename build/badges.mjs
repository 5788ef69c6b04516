/** Writes the README's badges from package.json: node build/badges.mjs [file, default docs/images/badges.svg]. No service is asked. */

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const { version, engines, license, dependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

const badges = [
  ['version', version],
  ['node', engines.node],
  ['dependencies', String(Object.keys(dependencies).length)],
  ['license', license],
]

/** Pixels of a character at 11 px, and of the space around a text. */
const [ADVANCE, INSET, GAP] = [6.6, 7, 6]
const escape = text => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')

let x = 0
const drawn = badges.map(([label, value]) => {
  const [left, right] = [label, value].map(text => Math.round(text.length * ADVANCE + 2 * INSET))
  const at = x
  x += left + right + GAP
  const text = (words, from, width) => `<text x="${at + from + width / 2}" y="14">${escape(words)}</text>`
  return `<rect x="${at}" width="${left + right}" height="20" rx="3" fill="#4a525b"/><path d="M${at + left} 0h${right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-${right - 3}z" fill="#2562a0"/>${text(label, 0, left)}${text(value, left, right)}`
})
const width = x - GAP
const title = badges.map(badge => badge.join(' ')).join(', ')
writeFileSync(
  process.argv[2] ?? join(root, 'docs/images/badges.svg'),
  `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} 20" width="${width}" height="20" role="img">
<title>${escape(title)}</title>
<style>text { fill: #fff; font: 11px Verdana, "DejaVu Sans", sans-serif; text-anchor: middle }</style>
${drawn.join('\n')}
</svg>
`,
)
