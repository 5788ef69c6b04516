import { renameSync, writeFileSync } from 'node:fs'
import t from 'tap'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { RUNTIMES, serveTree } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(120_000)

interface Sample {
  /** A handler that answers with the text of a helper elsewhere and the id of its process. */
  handler: (helper: string) => string
  /** The helper's name and source. */
  helper: string
  text: (text: string) => string
  /** A handler that loads the helper when it is called; absent where that is not told yet. */
  lazy?: (helper: string) => string
  alone: string
}

const SAMPLES: Partial<Record<RuntimeName, Sample>> = {
  node: {
    helper: 'helper.js',
    text: text => `exports.text = '${text}'\n`,
    handler: helper =>
      `const { text } = require(${JSON.stringify(helper)})\nexports.handler = () => ({ text, pid: process.pid })\n`,
    alone: 'exports.handler = () => ({ text: "", pid: process.pid })\n',
  },
  python: {
    helper: 'helper.py',
    text: text => `TEXT = '${text}'\n`,
    handler: helper =>
      `import os, sys\nsys.path.insert(0, os.path.dirname(${JSON.stringify(helper)}))\nimport helper\ndef handler(event):\n    return {'text': helper.TEXT, 'pid': os.getpid()}\n`,
    lazy: helper =>
      `import os, sys\nsys.path.insert(0, os.path.dirname(${JSON.stringify(helper)}))\ndef handler(event):\n    import helper\n    return {'text': helper.TEXT, 'pid': os.getpid()}\n`,
    alone: "import os\ndef handler(event):\n    return {'text': '', 'pid': os.getpid()}\n",
  },
}

for (const [runtime, sample] of Object.entries(SAMPLES)) {
  const isHere = RUNTIMES.includes(runtime as RuntimeName)
  t.test(
    `[discovery/layouts.46, runtime/wire-protocol.11] ${runtime}: an edit outside the root restarts the functions that loaded the file`,
    { skip: isHere ? false : `${runtime} is not installed` },
    async t => {
      const outside = makeTree({
        [sample.helper]: sample.text('one'),
        [`lazy/${sample.helper}`]: sample.text('lazy one'),
      })
      t.teardown(outside.cleanup)
      const extension = sample.helper.split('.').at(-1)
      const lazyFile = outside.path(`lazy/${sample.helper}`)
      const { url, gateway } = await serveTree(
        t,
        {
          [`a.${extension}`]: sample.handler(outside.path(sample.helper)),
          [`lazy.${extension}`]: sample.lazy?.(lazyFile) ?? sample.alone,
          [`alone.${extension}`]: sample.alone,
        },
        { hotReload: true },
      )
      const call = async (path: string) =>
        (await (await fetch(`${url}/${path}`)).json()) as { text: string; pid: number; error?: string }
      const reloaded = () => new Promise<void>(resolve => gateway.on('reload', () => resolve()))
      const alone = await call('alone')
      const first = await call('a')
      t.match(first, { text: 'one' })
      const edited = reloaded()
      writeFileSync(outside.path(sample.helper), sample.text('two'))
      await edited
      const second = await call('a')
      t.match(second, { text: 'two' })
      t.not(second.pid, first.pid)

      t.equal((await call('alone')).pid, alone.pid, 'what did not load it goes on')

      if (sample.lazy === undefined) return
      t.match(await call('lazy'), { text: 'lazy one' })
      // Again, so that the lazily loaded file has been told by now.
      t.match(await call('lazy'), { text: 'lazy one' })
      const replaced = reloaded()
      writeFileSync(`${lazyFile}.tmp`, sample.text('lazy two'))
      renameSync(`${lazyFile}.tmp`, lazyFile)
      await replaced
      t.match(await call('lazy'), { text: 'lazy two' })
      t.equal((await call('a')).pid, second.pid)
      t.equal((await call('alone')).pid, alone.pid)
    },
  )
}
