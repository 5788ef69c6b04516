import { chmodSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { findDebugpy } from '../../bin/debugpy.ts'
import { makeTree } from '../helpers/tree.ts'

/** An interpreter whose pip writes what it is asked for, and a log of its calls. */
const PYTHON = (has: boolean, pip: string): string => `#!/bin/sh
echo "$@" >> "$LOG"
if [ "$1" = -c ]; then echo ${has ? 'True' : 'False'} cpython-399-test; exit; fi
for word; do target=$last; last=$word; done
${pip}
`

t.test('[runtime/debuggers.10] debugpy is that of the interpreter, or one that is installed once', async t => {
  const { path, write, cleanup } = makeTree({
    with: PYTHON(true, 'exit 1'),
    without: PYTHON(false, 'mkdir "$target/debugpy"'),
    broken: PYTHON(false, 'echo "no network" >&2; exit 1'),
  })
  t.teardown(cleanup)
  write({ 'cache/': '' })
  for (const name of ['with', 'without', 'broken']) chmodSync(path(name), 0o755)
  const notes: string[] = []
  const find = (name: string) => {
    const env = { ...process.env, LOG: path('log'), XDG_CACHE_HOME: path('cache') }
    return findDebugpy({ python: path(name), env, note: text => notes.push(text) })
  }
  t.equal(await find('with'), null)
  await t.rejects(find('broken'), {
    message: /^cannot install debugpy: no network; install it yourself: .*broken -m pip/,
  })
  const folder = path('cache/fngw/debugpy/cpython-399-test/site-packages')
  t.notOk(existsSync(folder), 'a failed installation leaves nothing that is taken for one')
  notes.length = 0
  t.equal(await find('without'), folder)
  t.ok(existsSync(join(folder, 'debugpy')))
  t.same(notes, [`installing debugpy into ${folder}, once`, 'installed debugpy'])
  t.equal(await find('without'), folder)
  t.equal(notes.length, 2, 'installed once')
})
