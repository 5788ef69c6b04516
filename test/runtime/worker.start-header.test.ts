import t from 'tap'
import { type StartFacts, toStartHeader } from '../../lib/runtime/worker.ts'
import { makeFn } from '../helpers/fn.ts'

const FACTS: StartFacts = {
  functionsRoot: '/srv',
  production: true,
  toContext: fn => ({ function_name: fn.name }),
  toPackDirs: fn => [`/srv/.svc/packs/${fn.name}`],
}

t.test('[runtime/wire-protocol.10] a worker gets the facts of its function, and the values of its environment', t => {
  const fn = makeFn({
    env: { KEY: { value: 'secret', isSecret: true } },
    policy: { adapter: null, adapterName: 'none-such' } as never,
  })
  const header = JSON.parse(toStartHeader(fn, FACTS))
  t.match(header, {
    ...{ key: fn.key, runtime: fn.runtime, name: fn.name, version: null, root: '/srv' },
    ...{ dir: fn.fnDir, entry: fn.entryPath, callable: fn.callable, production: true },
    env: { KEY: 'secret' },
    packs: ['/srv/.svc/packs/hello'],
    context: { function_name: 'hello' },
  })
  t.equal(header.adapter, 'none-such', 'the worker refuses an unknown adapter by its name')
  t.notOk('reader' in header, 'only a worker of this process has one')
  t.equal(JSON.parse(toStartHeader(fn, { ...FACTS, toReader: () => 20_001 })).reader, 20_001)
  t.end()
})
