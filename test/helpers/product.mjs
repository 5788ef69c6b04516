// The product as it is installed: compiled, with what it reads beside it. It starts in a third of the time that its sources take.
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const BESIDE = ['runtimes', 'spec', 'package.json', 'node_modules']

/**
 * Joins the sources in a folder of their own, types unchecked.
 * @returns {{ folder: string, program: string, cleanup: () => void }} `program` is the full path of the command line
 * @throws Error with the builder's words
 */
export function compileProduct() {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-built-')))
  // Tests run it as other users.
  chmodSync(folder, 0o755)
  const dist = join(folder, 'dist')
  const made = spawnSync(process.execPath, ['build/bundle.mjs', dist, '--source-map'], { cwd: root, encoding: 'utf8' })
  for (const name of BESIDE) symlinkSync(join(root, name), join(folder, name))
  const cleanup = () => rmSync(folder, { recursive: true, force: true })
  if (!existsSync(join(dist, 'bin/fngw.js'))) {
    cleanup()
    throw new Error(`build/bundle.mjs: ${made.error?.message ?? made.signal ?? made.stderr}`)
  }
  // Tests build it where they want it.
  symlinkSync(join(root, 'dist/console'), join(dist, 'console'))
  return { folder, program: join(dist, 'bin/fngw.js'), cleanup }
}
