import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { createGateway } from '../../lib/index.ts'
import { RUNTIMES } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(120_000)

interface Sample {
  extension: string
  /** A helper's source. */
  text: (text: string) => string
  /** A handler that answers with the text of a helper elsewhere and the id of its process. */
  handler: (helper: string) => string
  /** One that loads the helper when it is called. */
  lazy: (helper: string) => string
  alone: string
  /** Handlers of the language read nothing outside the functions root: there another function's folder is elsewhere. */
  isInside?: boolean
}

const quote = (text: string): string => JSON.stringify(text)

const PYTHON_PATH = (helper: string): string =>
  `import os, sys\nsys.path.insert(0, os.path.dirname(${quote(helper)}))\n`
const PYTHON_ANSWER = "return {'text': helper.TEXT, 'pid': os.getpid()}\n"

const SAMPLES: Partial<Record<RuntimeName, Sample>> = {
  node: {
    extension: 'mjs',
    text: text => `export const text = '${text}'\n`,
    handler: helper =>
      `import { text } from ${quote(helper)}\nexport const handler = () => ({ text, pid: process.pid })\n`,
    lazy: helper =>
      `export const handler = async () => ({ text: (await import(${quote(helper)})).text, pid: process.pid })\n`,
    alone: 'export const handler = () => ({ text: "", pid: process.pid })\n',
  },
  python: {
    extension: 'py',
    text: text => `TEXT = '${text}'\n`,
    handler: helper => `${PYTHON_PATH(helper)}import helper\ndef handler(event):\n    ${PYTHON_ANSWER}`,
    lazy: helper => `${PYTHON_PATH(helper)}def handler(event):\n    import helper\n    ${PYTHON_ANSWER}`,
    alone: "import os\ndef handler(event):\n    return {'text': '', 'pid': os.getpid()}\n",
  },
  php: {
    extension: 'php',
    text: text => `<?php\nfunction words() { return '${text}'; }\n`,
    handler: helper =>
      `<?php\nrequire_once ${quote(helper)};\nfunction handler($e) { return ['text' => words(), 'pid' => getmypid()]; }\n`,
    lazy: helper =>
      `<?php\nfunction handler($e) {\n  require_once ${quote(helper)};\n  return ['text' => words(), 'pid' => getmypid()];\n}\n`,
    alone: "<?php\nfunction handler($e) { return ['text' => '', 'pid' => getmypid()]; }\n",
  },
  lua: {
    extension: 'lua',
    text: text => `return '${text}'\n`,
    handler: helper =>
      `local text = dofile(${quote(helper)})\nlocal id = os.clock()\nfunction handler(e) return { text = text, pid = id } end\n`,
    lazy: helper =>
      `local id = os.clock()\nlocal text\nfunction handler(e)\n  text = text or dofile(${quote(helper)})\n  return { text = text, pid = id }\nend\n`,
    alone: "local id = os.clock()\nfunction handler(e) return { text = '', pid = id } end\n",
    isInside: true,
  },
}

for (const [runtime, sample] of Object.entries(SAMPLES)) {
  const isHere = RUNTIMES.includes(runtime as RuntimeName)
  t.test(
    `[discovery/layouts.46, runtime/wire-protocol.11] ${runtime}: an edit outside the root restarts the functions that loaded the file`,
    { skip: isHere ? false : `${runtime} is not installed` },
    async t => {
      const { extension, isInside = false } = sample
      const helper = `other/helper.${extension}`
      const lazyHelper = `other/lazy/helper.${extension}`
      const outside = makeTree({ 'root/': '' })
      t.teardown(outside.cleanup)
      const folder = isInside ? outside.path('root') : outside.root
      const first = { [helper]: sample.text('one'), [lazyHelper]: sample.text('lazy one') }
      const at = (path: string): string => join(folder, path)
      for (const [path, text] of Object.entries(first)) {
        mkdirSync(dirname(at(path)), { recursive: true })
        writeFileSync(at(path), text)
      }
      outside.write({
        [`root/a.${extension}`]: sample.handler(at(helper)),
        [`root/lazy.${extension}`]: sample.lazy(at(lazyHelper)),
        [`root/alone.${extension}`]: sample.alone,
      })
      const gateway = await createGateway({
        functionsRoot: outside.path('root'),
        env: process.env,
        hotReload: true,
        // What it imports by a path of its own is no package to install.
        autoInferPyDeps: false,
      })
      t.teardown(() => gateway.close({ timeoutMs: 1000 }))
      const { url } = await gateway.listen({ port: 0, host: '127.0.0.1' })
      const call = async (path: string) =>
        (await (await fetch(`${url}/${path}`)).json()) as { text: string; pid: number | string }
      const reloaded = () => new Promise<void>(resolve => gateway.on('reload', () => resolve()))
      const alone = await call('alone')
      const before = await call('a')
      t.match(before, { text: 'one' })
      const edited = reloaded()
      writeFileSync(at(helper), sample.text('two'))
      await edited
      const second = await call('a')
      t.match(second, { text: 'two' })
      t.not(second.pid, before.pid)

      t.equal((await call('alone')).pid, alone.pid, 'what did not load it goes on')

      t.match(await call('lazy'), { text: 'lazy one' })
      // Again, so that the lazily loaded file has been told by now.
      t.match(await call('lazy'), { text: 'lazy one' })
      const replaced = reloaded()
      writeFileSync(at(`${lazyHelper}.tmp`), sample.text('lazy two'))
      renameSync(at(`${lazyHelper}.tmp`), at(lazyHelper))
      await replaced
      t.match(await call('lazy'), { text: 'lazy two' })
      t.equal((await call('a')).pid, second.pid)
      t.equal((await call('alone')).pid, alone.pid)
    },
  )
}
