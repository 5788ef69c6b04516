/**
 * Records the README's terminal: runs the commands below with the real product and writes what they print as an SVG.
 * Usage: node build/record-terminal.mjs [file, default docs/images/terminal.svg] [command line that starts fngw, default the build]
 *
 * The same output gives the same file: the folder, the port, times and durations are replaced, so a new recording differs only
 * where the product does. Needs `script` (util-linux), python3 and curl.
 */

import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const [target = join(root, 'docs/images/terminal.svg'), ...given] = process.argv.slice(2)
const command = given.length > 0 ? given : [process.execPath, join(root, 'dist/bin/fngw.js')]

const LUA = "echo 'function handler(e, params) return { n = params.n * 2 } end' > 'get.double.[n].lua'"

/** Seconds that a command is typed, and that its output stands before the next command. */
const TYPING_S = 0.6
const PAUSE_S = 1.2

const home = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-recording-')))
const folder = join(home, 'shop')
const env = {
  PATH: process.env.PATH,
  HOME: home,
  TERM: 'xterm-256color',
  LANG: 'C.UTF-8',
  npm_config_progress: 'false',
  npm_config_update_notifier: 'false',
}

/** Panes of the picture: lines with the second at which each appears. */
const server = { title: '~/shop, a second terminal', lines: [] }
const client = { title: '~/shop', lines: [] }
let now = 0.4

const dev = { child: null, output: '', shown: 0 }
try {
  makeProject()
  type(client, 'npx fngw init hello -t python')
  await startDev()
  const { port } = new URL(/ready (\S+)/.exec(dev.output)[1])
  type(client, "curl 'http://127.0.0.1:8080/hello?name=Ada'", port)
  await showServer(/ GET \/hello [^\n]*\n/)
  type(client, LUA)
  await showServer(/reloaded [^\n]*\n/)
  type(client, 'curl http://127.0.0.1:8080/double/21', port)
  await showServer(/ GET \/double\/21 [^\n]*\n/)
  mkdirSync(dirname(target), { recursive: true })
  writeFileSync(target, draw([client, server]))
} finally {
  if (dev.child !== null) {
    const ended = once(dev.child, 'close')
    // The key reaches it once it takes keys; before, the terminal is closed.
    if (dev.output.includes('keys:')) dev.child.stdin.end('q')
    else dev.child.kill('SIGTERM')
    await ended
  }
  rmSync(home, { recursive: true, force: true })
}

/** A project that has fngw installed. */
function makeProject() {
  mkdirSync(join(folder, 'node_modules/.bin'), { recursive: true })
  symlinkSync(root, join(folder, 'node_modules/fngw'))
  writeFileSync(join(folder, 'package.json'), '{ "devDependencies": { "fngw": "*" } }\n')
  const program = join(folder, 'node_modules/.bin/fngw')
  writeFileSync(program, `#!/bin/sh\nexec ${command.map(word => `'${word}'`).join(' ')} "$@"\n`)
  chmodSync(program, 0o755)
}

/** Runs a command at a terminal, in the pane where it is typed. */
function type(pane, text, port = '') {
  add(pane, `\x1b[32m$\x1b[39m ${text}`)
  now += TYPING_S
  const words = ['-qec', text.replace(':8080', `:${port}`), '/dev/null']
  print(pane, execFileSync('script', words, { cwd: folder, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] }))
  now += PAUSE_S
}

async function startDev() {
  add(server, '\x1b[32m$\x1b[39m npx fngw dev')
  now += TYPING_S
  dev.child = spawn('script', ['-qefc', 'npx fngw dev --port 0', '/dev/null'], {
    cwd: folder,
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  dev.child.stdout.setEncoding('utf8').on('data', text => {
    dev.output += text
  })
  await showServer(/keys: [^\n]*\n/)
  now += PAUSE_S
}

/** Waits for a line of the server and shows what it printed since. */
async function showServer(pattern) {
  while (!pattern.test(dev.output.slice(dev.shown))) {
    if (dev.child.exitCode !== null) throw new Error(`fngw dev ended\n${dev.output}`)
    await once(dev.child.stdout, 'data')
  }
  const end = dev.output.lastIndexOf('\n') + 1
  // The client's response and the server's line appear together.
  const at = now
  now -= dev.shown === 0 ? 0 : PAUSE_S
  print(server, dev.output.slice(dev.shown, end))
  now = at
  dev.shown = end
}

function print(pane, text) {
  const plain = text
    .replaceAll('\r', '')
    .replace(/^(?:\x1b\[\d*[GK])+/gm, '')
    .replaceAll(folder, '~/shop')
    .replace(/127\.0\.0\.1:\d+/g, '127.0.0.1:8080')
    .replace(/(?:\x1b\[\d+m)*\d\d:\d\d:\d\d(?:\x1b\[\d+m)* /g, '')
    .replace(/ in \d+ ms/g, '')
    .replace(/ [\d.]+ms/g, '')
    .trimEnd()
  if (plain === '') return
  for (const line of plain.split('\n')) {
    // A file that is written and closed may be seen twice.
    if (line !== pane.lines.at(-1)?.text || line === '') add(pane, line)
  }
}

function add(pane, text) {
  pane.lines.push({ text, at: now })
}

/** Panes below each other; a line appears at its second and stays, and all stand there at once where motion is unwanted. */
function draw(panes) {
  const columns = 91
  const [advance, leading, bar, inset] = [8.4, 20, 32, 16]
  const width = Math.round(columns * advance + 2 * inset)
  let y = 0
  const parts = panes.map(({ title, lines }) => {
    const height = bar + lines.length * leading + inset
    const rows = lines.map(({ text, at }, i) => {
      const spans = toSpans(text).map(({ column, part, style }) => {
        const place = `x="${round(inset + column * advance)}" textLength="${round(part.length * advance)}"`
        return `<tspan ${place}${style && ` class="${style}"`}>${escape(part)}</tspan>`
      })
      const place = `y="${y + bar + (i + 1) * leading - 6}" style="animation-delay:${round(at)}s"`
      return spans.length === 0 ? '' : `<text ${place}>${spans.join('')}</text>\n`
    })
    const frame = `<rect y="${y}" width="${width}" height="${height}" rx="8"/><text class="title" x="${width / 2}" y="${y + 21}">${title}</text>`
    y += height + 12
    return `${frame}\n${rows.join('')}`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${y - 12}" width="${width}" height="${y - 12}" role="img">
<title>A terminal: fngw init writes a function in Python, fngw dev serves it, and a new file in Lua is served at once.</title>
<style>
rect { fill: #16191d; stroke: #3a4149 }
text { fill: #d5dae0; font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; animation: appear .01s both }
.title { fill: #949da7; text-anchor: middle; animation: none }
.bold { font-weight: 700 } .dim { fill: #949da7 } .green { fill: #7ccf8a } .red { fill: #ef8a80 } .yellow { fill: #e0c067 } .cyan { fill: #6cc3d5 }
@keyframes appear { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { text { animation: none } }
</style>
${parts.join('')}</svg>
`
}

/** Runs of one style. */
function toSpans(text) {
  const names = { 1: 'bold', 2: 'dim', 31: 'red', 32: 'green', 33: 'yellow', 36: 'cyan', 90: 'dim' }
  const spans = []
  let [column, style] = [0, '']
  for (const [, code, part] of text.matchAll(/\x1b\[([\d;]*)m|([^\x1b]+)/g)) {
    if (code !== undefined) style = names[code] ?? ''
    else {
      if (part.trim() !== '') spans.push({ column, part, style })
      column += part.length
    }
  }
  return spans
}

function round(value) {
  return Number(value.toFixed(1))
}

function escape(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
}
