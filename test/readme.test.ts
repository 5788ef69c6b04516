import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { isInstalled } from './docs/checks.ts'
import { FNGW, toEnv } from './helpers/cli.ts'

t.setTimeout(120_000)

const root = fileURLToPath(new URL('..', import.meta.url))
const missing = ['script', 'python3', 'curl'].find(program => !isInstalled(program))
const skip = missing === undefined ? false : `${missing} is not installed`

/** The picture without versions, which differ from machine to machine, and without the times and widths that follow from them. */
function textOf(svg: string): string {
  return svg
    .replace(/<style>[\s\S]*?<\/style>/, '')
    .replace(/<[^>]+>/g, '')
    .replace(/\d+\.\d+\.\d+(?!\.)/g, '<version>')
}

const readImage = (name: string): string => readFileSync(join(root, 'docs/images', name), 'utf8')
const readme = readFileSync(join(root, 'README.md'), 'utf8')

function runScript(t: Test, script: string, target: string, ...words: string[]): string {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-images-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const path = join(folder, target)
  const args = [join(root, 'build', script), path, ...words]
  const { status, stderr } = spawnSync(process.execPath, args, { env: toEnv(), encoding: 'utf8' })
  t.equal(status, 0, stderr)
  return readFileSync(path, 'utf8')
}

t.test('[examples.3] the terminal of the README shows what the product prints', { skip }, async t => {
  const recorded = runScript(t, 'record-terminal.mjs', 'terminal.svg', ...FNGW)
  t.equal(textOf(recorded), textOf(readImage('terminal.svg')), 'node build/record-terminal.mjs records it again')
})

t.test('[examples.4] the badges say what package.json says, and the README has 200 lines at most', async t => {
  t.equal(runScript(t, 'badges.mjs', 'badges.svg'), readImage('badges.svg'), 'node build/badges.mjs writes them again')
  t.ok(readme.trimEnd().split('\n').length <= 200)
})

t.test('[examples.5] every picture of the README is there, small, and described', async t => {
  const pictures = [...readme.matchAll(/!\[(.+?)\]\((.+?)\)|(?:src|srcset)="(.+?)"/g)].map(
    ([, , path, other]) => path ?? other!,
  )
  t.same(
    pictures.toSorted(),
    ['badges.svg', 'console-dark.png', 'console-light.png', 'terminal.svg'].map(name => `docs/images/${name}`),
  )
  for (const path of pictures) t.ok(statSync(join(root, path)).size < 150_000, path)
})
