import t from 'tap'
import type { BuildTools } from '../../lib/dependencies/run-tool.ts'
import { findByPipreqs } from '../../lib/dependencies/python-imports.ts'

function answering(code: number, output: string, asked: string[][] = []): BuildTools {
  return {
    signal: new AbortController().signal,
    run: async ({ args }) => {
      asked.push([...args])
      return { code, output, timedOut: false, problem: null }
    },
  }
}

t.test('[dependencies/python.14] names that pipreqs prints are packages; what it says beside them is not', async t => {
  const asked: string[][] = []
  const output =
    'INFO: Not scanning for jupyter notebooks.\nPyYAML\nrequests\nrequests\n\nINFO: Successfully output requirements\n'
  const tools = answering(0, output, asked)
  t.same(await findByPipreqs('/srv/a', { program: 'python3', version: '' }, tools), ['pyyaml', 'requests'])
  t.same(asked[0]?.at(-1), '/srv/a')
})

t.test('[dependencies/python.14] without it the message says how to get it', async t => {
  const none = answering(1, '/usr/bin/python3: No module named pipreqs\n')
  await t.rejects(findByPipreqs('/srv/a', { program: 'python3', version: '' }, none), {
    message: /^install failed: FN_PY_INFER_BACKEND is pipreqs/,
    detail: { hint: /pip install pipreqs, or FN_PY_INFER_BACKEND=native/ },
  })
  const bad = answering(1, 'Traceback\nOSError: broken\n')
  await t.rejects(findByPipreqs('/srv/a', { program: 'python3', version: '' }, bad), {
    message: /pipreqs: OSError: broken/,
  })
})
