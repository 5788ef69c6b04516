// Runs the test files with tap and ends with one plain line: `N passed, N failed`.
// Usage: node test/run.mjs [file ...]
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const tap = fileURLToPath(new URL('../node_modules/tap/dist/esm/run.mjs', import.meta.url))
if (!existsSync(tap)) {
  process.stderr.write('node_modules is missing or incomplete: run `npm install` first\n')
  process.exit(1)
}

// tap compiles its plugin list into .tap/; ours differs from its default (tsx strips the types).
const stamp = fileURLToPath(new URL('../.tap/fngw-plugins', import.meta.url))
const wanted = readFileSync(fileURLToPath(new URL('../.taprc', import.meta.url)), 'utf8')
if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== wanted) {
  const built = spawnSync(process.execPath, [tap, 'build'], { cwd: root, encoding: 'utf8' })
  if (built.status !== 0) {
    process.stderr.write(`tap build failed:\n${built.stdout}${built.stderr}`)
    process.exit(1)
  }
  writeFileSync(stamp, wanted)
}

const child = spawn(process.execPath, [tap, '--reporter=tap', ...process.argv.slice(2)], {
  cwd: root,
  stdio: ['ignore', 'pipe', 'inherit'],
})
let totals = null
/** Points of the file being read, printed only when one of them failed: a green run stays short. */
let held = []
let failedInFile = false
for await (const line of createInterface({ input: child.stdout })) {
  const total = /^# \{ (total: .*) \}$/.exec(line)
  if (total !== null) totals = Object.fromEntries(total[1].split(', ').map(part => part.split(': ')))
  if (/^\s*not ok /.test(line) && !/# (SKIP|TODO)/.test(line)) failedInFile = true
  if (/# SKIP/.test(line)) process.stdout.write(`${line}\n`)
  held.push(line)
  if (/^(not )?ok \d/.test(line)) {
    process.stdout.write(failedInFile ? `${held.join('\n')}\n` : `${line}\n`)
    held = []
    failedInFile = false
  }
}
const code = await new Promise(done => (child.exitCode === null ? child.on('close', done) : done(child.exitCode)))
if (totals === null) {
  process.stdout.write(`${held.join('\n')}\n`)
  process.stdout.write('0 passed, 1 failed\n')
  process.exit(1)
}
const failed = Number(totals.fail ?? 0)
const skipped = Number(totals.skip ?? 0)
process.stdout.write(`${totals.pass ?? 0} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`)
process.exit(code === 0 && failed === 0 ? 0 : 1)
