import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { Installer } from '../../lib/dependencies/install.ts'
import type { InstallPlan, InstallStep, InstallUnit } from '../../lib/dependencies/install-step.ts'
import { Builds } from '../../lib/dependencies/resolve.ts'
import { installError, type InstallPlace, passingError, ToolFailure } from '../../lib/dependencies/tool-failure.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { makeFn } from '../helpers/fn.ts'
import { makeTree, type TreeEntry } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

// Interpreters and installers are slow on a busy machine.
t.setTimeout(180_000)

interface BedOptions {
  isOn?: boolean
  isPrivate?: boolean
  isStrict?: boolean
  packs?: Record<string, string[]>
}

/** An installer whose manifest `wants.txt` is the set, and whose fills wait when the test says so. */
function makeBed(
  t: Test,
  entries: Record<string, TreeEntry>,
  { isOn = true, isPrivate = false, isStrict = true, packs = {} }: BedOptions = {},
) {
  const tree = makeTree(entries)
  const seen = {
    fills: [] as string[],
    plans: [] as string[],
    told: [] as string[],
    failures: [] as string[],
    notes: [] as string[],
    env: '',
    beside: '',
  }
  const above = { stamp: 'nothing' }
  const held = new Map<string, () => void>()
  const holds = new Set<string>()
  const step: InstallStep = {
    runtime: 'python',
    target: '.deps',
    manifests: ['wants.txt'],
    concurrency: 4,
    isAhead: true,
    isOn,
    setting: 'FN_AUTO_TEST',
    rules: '1',
    isStrict,
    onNote: note => seen.notes.push(note),
    toEnv: ({ HOST }) => ({ SEEN: HOST ?? '' }),
    isWanted: ({ folder, functions }) => {
      seen.beside = functions.map(({ entryFile }) => entryFile).join(' ')
      return existsSync(join(folder, 'wants.txt'))
    },
    stampAbove: () => above.stamp,
    readVersion: async () => 'tool 1',
    plan: async ({ folder, label, isPack, functions, asked, failed }: InstallUnit): Promise<InstallPlan | null> => {
      const manifest = join(folder, 'wants.txt')
      const lines = [...(existsSync(manifest) ? [readFileSync(manifest, 'utf8').trim()] : []), ...asked]
      // A word per package; what is known to fail is not asked for.
      const wanted = lines.join(' ').split(' ')
      const text = wanted.filter(word => !failed.has(word)).join(' ')
      const lost = wanted.filter(word => failed.has(word))
      seen.plans.push(label)
      if (text === 'nothing') return null
      return {
        ...((text === 'unknown' || text === '') && {
          emptyOutcome: async () => ({
            resolvedPackages: [],
            unresolvedImports: [...lost, ...(text === '' ? [] : [text])],
          }),
        }),
        inferred: new Map(text.split(' ').includes('gone') ? [['gone', `${label}/handler.py:1`]] : []),
        toUserError: failure => failure.toError(failure.message, { file: label }),
        key: Buffer.from([text, ...lost].join('|').padEnd(16, '.').slice(0, 16)).toString('hex'),
        facts: {
          mode: 'manifest',
          manifest: 'wants.txt',
          infer_backend: null,
          inference_duration_ms: 0,
          inferred_imports: ['a'],
        },
        fill: async (draft, tools) => {
          const { signal } = tools
          seen.fills.push(text)
          const command = '/bin/sh'
          const { output } = await tools.run({ command, args: ['-c', 'echo $SEEN$SECRET'], cwd: draft.path })
          seen.env = output.trim()
          if (holds.has(text)) {
            await new Promise<void>((resolve, reject) => {
              held.set(text, resolve)
              signal.addEventListener('abort', () => reject(new Error('killed')))
            })
          }
          const place: InstallPlace = { file: `${label}/wants.txt`, line: 1 }
          if (text.startsWith('bad')) throw installError(`no package ${text}`, place)
          if (text.includes('gone')) throw new ToolFailure('no package gone', { kind: 'lasting', packageName: 'gone' })
          if (text.startsWith('away')) throw passingError('no network', 'try again')
          draft.below('.deps', 'pack').write('code.py', `# ${text}`)
          return { resolvedPackages: [text], unresolvedImports: lost }
        },
        unmet: ({ unresolvedImports }) => {
          const error = installError('an import is not resolved', { file: label })
          const [first] = functions
          if (unresolvedImports.length > 0) return [{ entries: [first!.entryPath], error }]
          return text.startsWith('strict') ? [{ entries: functions.map(({ entryPath }) => entryPath), error }] : []
        },
        settle: () => {
          if (!isPack) new OwnFolder(folder).write('wants.lock', text)
          return { isManifestGenerated: false, manifest: 'wants.txt', lockFile: 'wants.lock' }
        },
      }
    },
  }
  const installer = new Installer(step, {
    functionsRoot: tree.root,
    clock: systemClock,
    isPrivate,
    packsOf: fn =>
      fn.policy.sharedDeps.flatMap(name => {
        const found = packs[name]
        if (found === undefined) throw new GatewayError('LOAD_FAILED', `shared pack not found: ${name}`)
        return found.map(tree.path)
      }),
  })
  const makeBuilds = (using: Installer) =>
    new Builds({
      isPrivate,
      clock: systemClock,
      temporaryFolder: new OwnFolder(tree.root, '.svc', 'build', 'tmp'),
      hostEnv: { HOST: 'host', SECRET: 'secret' },
      builders: [using],
      waitMs: 0,
      findProgram: () => ({ path: '/bin/sh', problem: null }),
      onBegin: (fn, action) => seen.told.push(`${action} ${fn.name}`),
      onEnd: () => {},
      onBuilt: ({ fn, made }) => seen.told.push(`${fn.name}: ${made.names.join(', ')}`),
      onFailure: (fn, error, others) => {
        const count = others.length === 0 ? '' : ` (${others.length + 1})`
        seen.failures.push(`${fn.name}: ${error.message}${count}`)
      },
    })
  const builds = makeBuilds(installer)
  t.teardown(async () => {
    for (const open of held.values()) open()
    await builds.close()
    tree.cleanup()
  })
  const fn = (name: string, fields: Parameters<typeof makeFn>[0] = {}): FunctionVersion =>
    makeFn({
      runtime: 'python',
      name,
      key: `python/${fields.entryFile ?? name}@default`,
      fnDir: tree.path(name),
      entryPath: tree.path(`${name}/handler.py`),
      entryFile: `${name}/handler.py`,
      ...fields,
    })
  return {
    tree,
    step,
    installer,
    builds,
    seen,
    above,
    fn,
    /** A gateway that starts again. */
    again: () => {
      const fresh = makeBuilds(
        new Installer(step, { functionsRoot: tree.root, clock: systemClock, isPrivate, packsOf: () => [] }),
      )
      t.teardown(() => fresh.close())
      return fresh
    },
    hold: (text: string) => holds.add(text),
    isHeld: (text: string) => until(() => held.has(text)),
    go: (text: string) => {
      holds.delete(text)
      held.get(text)!()
    },
    code: (name: string) => readFileSync(tree.path(`${name}/.deps/pack/code.py`), 'utf8'),
  }
}

t.test(
  '[dependencies/install.2, dependencies/install.1] equal wishes are installed once and share their files',
  async t => {
    const bed = makeBed(t, { 'a/wants.txt': 'flask', 'b/wants.txt': 'flask', 'c/wants.txt': 'django' })
    await Promise.all(['a', 'b', 'c'].map(name => bed.builds.prepare(bed.fn(name))))
    t.same([...bed.seen.fills].sort(), ['django', 'flask'])
    t.equal(bed.code('a'), '# flask')
    t.equal(bed.code('c'), '# django')
    const inode = (name: string) => statSync(bed.tree.path(`${name}/.deps/pack/code.py`)).ino
    t.equal(inode('a'), inode('b'))
    t.ok(bed.seen.told.includes('installing packages of a'))
    t.equal(bed.seen.env, 'host', 'tools see what the step lets them')
    t.ok(bed.seen.told.includes('a: flask'))
    t.equal(bed.builds.toStep(bed.fn('a')), 'installing packages of python function a')
  },
)

t.test('[dependencies/install.2] other users run functions: files are copied', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask', 'b/wants.txt': 'flask' }, { isPrivate: true })
  await Promise.all(['a', 'b'].map(name => bed.builds.prepare(bed.fn(name))))
  t.same(bed.seen.fills, ['flask'])
  const inode = (name: string) => statSync(bed.tree.path(`${name}/.deps/pack/code.py`)).ino
  t.not(inode('a'), inode('b'))
})

t.test('[dependencies/install.1] handlers of one folder share one install', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask' })
  const routes = ['get', 'post'].map(name =>
    bed.fn('a', { entryFile: `a/${name}.py`, entryPath: bed.tree.path(`a/${name}.py`) }),
  )
  bed.builds.retain(new Map(routes.map(fn => [fn.key, fn])))
  await Promise.all(routes.map(fn => bed.builds.prepare(fn)))
  t.same(bed.seen.fills, ['flask'])
  t.same(readdirSync(bed.tree.path('a')).sort(), ['.deps', 'wants.lock', 'wants.txt'])
})

t.test('[dependencies/install.1] handlers come to a folder and go from it', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask', 'b/wants.txt': 'django' })
  const make = (folder: string, name: string) =>
    bed.fn(folder, { key: `python/${folder}/${name}@default`, entryFile: `${folder}/${name}.py` })
  const [get, post, put, other] = [make('a', 'get'), make('a', 'post'), make('a', 'put'), make('b', 'get')]
  const besides = (...functions: FunctionVersion[]) => {
    bed.builds.retain(new Map(functions.map(fn => [fn.key, fn])))
    return functions.map(fn => bed.installer.isNeeded(fn) && bed.seen.beside)
  }
  t.same(besides(get, other), ['a/get.py', 'b/get.py'])
  t.same(besides(get, post, other), ['a/get.py a/post.py', 'a/get.py a/post.py', 'b/get.py'])
  t.same(besides(post, other), ['a/post.py', 'b/get.py'])
  const all = 'a/get.py a/post.py a/put.py'
  t.same(besides(put, get, post), [all, all, all])
  const node = { ...bed.fn('a', { key: 'node/a@default', entryFile: 'a/x.js' }), runtime: 'node' as const }
  t.same(besides(put, get, node).slice(0, 2), ['a/get.py a/put.py', 'a/get.py a/put.py'], 'of one language')
  t.same(besides(make('a', 'get'), make('a', 'put')), ['a/get.py a/put.py', 'a/get.py a/put.py'], 'edited')
  t.same(besides(), [])
})

t.test('[dependencies/install.4] nothing is looked at again until something changes', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask' })
  await bed.builds.prepare(bed.fn('a'))
  await bed.again().prepare(bed.fn('a'))
  t.equal(bed.seen.plans.length, 1, 'the signature says that nothing changed')
  t.match(JSON.parse(readFileSync(bed.tree.path('a/.deps/.svc-deps-state.json'), 'utf8')), {
    runtime: 'python',
    mode: 'manifest',
    manifest_path: 'a/wants.txt',
    manifest_generated: false,
    inferred_imports: ['a'],
    resolved_packages: ['flask'],
    unresolved_imports: [],
    last_install_status: 'ok',
    last_error: null,
    lockfile_path: 'a/wants.lock',
  })
  writeFileSync(bed.tree.path('a/handler.py'), '# touched')
  await bed.again().prepare(bed.fn('a', { signature: '2' }))
  t.equal(bed.seen.plans.length, 2)
  t.same(bed.seen.fills, ['flask'], 'the same key needs no install')
  writeFileSync(bed.tree.path('a/wants.txt'), 'django')
  await bed.builds.prepare(bed.fn('a', { signature: '3' }))
  t.equal(bed.code('a'), '# django')
})

t.test('[dependencies/install.3] a failed or refused install leaves the old set and is told by the record', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask' })
  await bed.builds.prepare(bed.fn('a'))
  const { set } = bed.installer.recordOf(bed.fn('a'))!
  t.type(set, 'string')
  for (const [signature, text, message] of [
    ['2', 'bad one', 'install failed: no package bad one'],
    ['3', 'strict one', 'install failed: an import is not resolved'],
  ] as const) {
    writeFileSync(bed.tree.path('a/wants.txt'), text)
    const fn = bed.fn('a', { signature })
    await t.rejects(bed.builds.prepare(fn), { message })
    await t.rejects(bed.builds.prepare(fn), { message })
    t.equal(bed.seen.fills.filter(fill => fill === text).length, 1, 'kept until a file changes')
    t.equal(bed.code('a'), '# flask')
    const failed = {
      last_install_status: 'error',
      last_error: message,
      resolved_packages: [],
      unresolved_imports: ['a'],
    }
    t.match(bed.installer.recordOf(fn), { ...failed, set, manifest_generated: false, manifest_path: 'a/wants.txt' })
  }
  writeFileSync(bed.tree.path('a/wants.txt'), 'away')
  const passing = { message: 'install failed: no network', detail: { hint: 'try again' } }
  await t.rejects(bed.builds.prepare(bed.fn('a', { signature: '4' })), passing)
  t.notOk(existsSync(bed.tree.path('a/.svc-deps')))
})

t.test('[dependencies/install.9] what many functions want and cannot be had is tried once', async t => {
  const names = Array.from({ length: 20 }, (_, at) => `f${at}`)
  const bed = makeBed(t, Object.fromEntries(names.map(name => [`${name}/wants.txt`, 'bad one'])))
  const message = 'install failed: no package bad one'
  const outcomes = await Promise.allSettled(names.map(name => bed.builds.prepare(bed.fn(name))))
  t.ok(outcomes.every(outcome => outcome.status === 'rejected' && outcome.reason.message === message))
  t.same(bed.seen.fills, ['bad one'])
  bed.tree.write({ 'late/wants.txt': 'bad one' })
  await t.rejects(bed.builds.prepare(bed.fn('late')), { message })
  t.equal(bed.seen.fills.length, 1, 'who comes later is told the same')
  t.match(bed.installer.recordOf(bed.fn('late')), { last_install_status: 'error', last_error: message })

  bed.tree.write({ 'f3/wants.txt': 'bad one\n' })
  await t.rejects(bed.builds.prepare(bed.fn('f3', { signature: '2' })), { message })
  t.equal(bed.seen.fills.length, 2, 'a save is a reason to try it again, once for all')
  await t.rejects(bed.builds.prepare(bed.fn('f4', { signature: '2' })), { message })
  t.equal(bed.seen.fills.length, 2)
  bed.tree.write({ 'f3/wants.txt': 'good' })
  await bed.builds.prepare(bed.fn('f3', { signature: '3' }))
  t.equal(bed.code('f3'), '# good')
})

t.test(
  '[dependencies/install.15] a failure is tried again when a file of a neighbour changed, and reported once',
  async t => {
    const bed = makeBed(t, { 'a/wants.txt': 'bad one' })
    const neighbours = (signature: string): FunctionVersion[] => [
      bed.fn('a', { key: 'one', signature: '1' }),
      bed.fn('a', { key: 'two', signature }),
    ]
    const retain = (functions: readonly FunctionVersion[]) => {
      bed.builds.retain(new Map(functions.map(fn => [fn.key, fn])))
    }
    const before = neighbours('1')
    retain(before)
    await Promise.allSettled(before.map(fn => bed.builds.prepare(fn)))
    t.same(bed.seen.failures, ['a: install failed: no package bad one (2)'])
    bed.tree.write({ 'a/wants.txt': 'good' })
    const after = neighbours('2')
    retain(after)
    await bed.builds.prepare(after[0]!)
    t.equal(bed.code('a'), '# good', 'the unchanged one gets its packages')
  },
)

t.test('[dependencies/install.3] what a kill left half done is put back or finished', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask' })
  await bed.builds.prepare(bed.fn('a'))
  const { renameSync, rmSync } = await import('node:fs')
  // Killed between the two renames: the old set is beside its place, the new one is not there yet.
  mkdirSync(bed.tree.path('a/.svc-deps/.deps'), { recursive: true })
  renameSync(bed.tree.path('a/.deps'), bed.tree.path('a/.svc-deps/.deps/old'))
  mkdirSync(bed.tree.path('a/.svc-deps/.deps/new-0123456789ab'))
  await bed.again().prepare(bed.fn('a'))
  t.equal(bed.code('a'), '# flask')
  t.same(bed.seen.fills, ['flask'])
  // Killed while a set was filled: half a set has another name.
  rmSync(bed.tree.path('.svc/deps'), { recursive: true })
  rmSync(bed.tree.path('a/.deps'), { recursive: true })
  mkdirSync(bed.tree.path('.svc/deps/d-abcdef/.deps'), { recursive: true })
  const [name = ''] = ['python-', Buffer.from('flask...........').toString('hex')].join('').split(' ')
  mkdirSync(bed.tree.path(`.svc/deps/${name}/.deps`), { recursive: true })
  await bed.again().prepare(bed.fn('a'))
  t.equal(bed.code('a'), '# flask')
  t.same(bed.seen.fills, ['flask', 'flask'])
})

t.test('[dependencies/install.5] what somebody else installed stays as it is', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask', 'a/.deps/mine/code.py': '# mine' })
  await bed.builds.prepare(bed.fn('a'))
  t.same(bed.seen.fills, [])
  t.equal(readFileSync(bed.tree.path('a/.deps/mine/code.py'), 'utf8'), '# mine')
  t.match(bed.installer.recordOf(bed.fn('a')), {
    last_install_status: 'skipped',
    last_error: /delete it to have it made/,
  })
})

t.test('[dependencies/install.5] nor is what somebody installs while the tool works', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask' })
  bed.hold('flask')
  const fn = bed.fn('a')
  const done = bed.builds.prepare(fn)
  await bed.isHeld('flask')
  bed.tree.write({ 'a/.deps/mine/code.py': '# mine' })
  bed.go('flask')
  await done
  t.equal(readFileSync(bed.tree.path('a/.deps/mine/code.py'), 'utf8'), '# mine')
  t.same(readdirSync(bed.tree.path('a/.deps')), ['mine'])
  t.match(bed.installer.recordOf(fn), { last_install_status: 'skipped', last_error: /delete it to have it made/ })
  t.notOk(existsSync(bed.tree.path('a/wants.lock')), 'nothing is written for packages that are not there')
})

t.test('[dependencies/install.6] off, or nothing wanted: nothing is read or written', async t => {
  const off = makeBed(t, { 'a/wants.txt': 'flask' }, { isOn: false })
  t.equal(await off.builds.prepare(off.fn('a')), null)
  t.same(off.seen.plans, [])
  t.same(readdirSync(off.tree.path('a')), ['wants.txt'])
  const none = makeBed(t, { 'a/handler.py': '' })
  t.equal(await none.builds.prepare(none.fn('a')), null)
  t.same(readdirSync(none.tree.path('a')), ['handler.py'])
  t.notOk(existsSync(none.tree.path('.svc')))
  t.equal(none.installer.recordOf(none.fn('a')), null)
})

t.test('[dependencies/install.7] a function that goes away does not take the install from another', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask', 'b/wants.txt': 'flask' })
  bed.hold('flask')
  const [a, b] = [bed.fn('a'), bed.fn('b')]
  bed.builds.retain(new Map([a, b].map(fn => [fn.key, fn])))
  const first = bed.builds.prepare(a)
  await bed.isHeld('flask')
  const second = bed.builds.prepare(b)
  await until(() => bed.seen.told.includes('installing packages of b'))
  bed.seen.fills.length = 0
  bed.builds.retain(new Map([[b.key, b]]))
  await t.rejects(first, { message: 'build was stopped' })
  await until(() => bed.seen.fills.length === 1)
  bed.go('flask')
  await second
  t.equal(bed.code('b'), '# flask')
})

t.test('[runtime/stand-in.2] a look that has to wait for the install of a neighbour is work', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask' })
  const [get, post] = ['get', 'post'].map(name =>
    bed.fn('a', { entryFile: `a/${name}.py`, entryPath: bed.tree.path(`a/${name}.py`) }),
  ) as [FunctionVersion, FunctionVersion]
  t.equal(bed.installer.isBusy(post), false)
  bed.hold('flask')
  const first = bed.builds.prepare(get)
  await bed.isHeld('flask')
  t.equal(bed.installer.isBusy(post), true)
  t.equal(bed.installer.isBusy(bed.fn('b')), false, 'other folders are not')
  const told = new Promise<void>(resolve => void bed.builds.prepare(post, resolve))
  await told
  bed.go('flask')
  await first
  await bed.builds.prepare(post)
  t.equal(bed.installer.isBusy(post), false)
})

t.test('[dependencies/install.8] packs come before the function, and a missing one fails it', async t => {
  const entries = { 'a/handler.py': '', 'p/wants.txt': 'numpy' }
  const bed = makeBed(t, entries, { packs: { science: ['p'] } })
  await bed.builds.prepare(bed.fn('a', { policy: { sharedDeps: ['science'] } }))
  t.equal(bed.code('p'), '# numpy')
  t.notOk(existsSync(bed.tree.path('a/.deps')))
  const missing = bed.fn('a', { signature: '2', policy: { sharedDeps: ['none'] } })
  await t.rejects(bed.builds.prepare(missing), { message: 'shared pack not found: none' })
  const off = makeBed(t, entries, { isOn: false })
  await t.rejects(off.builds.prepare(off.fn('a', { policy: { sharedDeps: ['none'] } })), { message: /^shared pack/ })
})

/** Two routes of folder `a`; `get` is the first of them. */
function twoOf(bed: ReturnType<typeof makeBed>, signature = '1'): [FunctionVersion, FunctionVersion] {
  const make = (name: string) => {
    const entryFile = `a/${name}.py`
    return bed.fn('a', { key: `python/${name}`, signature, entryFile, entryPath: bed.tree.path(entryFile) })
  }
  const both: [FunctionVersion, FunctionVersion] = [make('get'), make('post')]
  bed.builds.retain(new Map(both.map(fn => [fn.key, fn])))
  return both
}

t.test(
  '[dependencies/install.14] a package that only an import asks for fails the functions that import it',
  async t => {
    const bed = makeBed(t, { 'a/wants.txt': 'flask gone' })
    const [get, post] = twoOf(bed)
    await t.rejects(bed.builds.prepare(get), { message: 'install failed: an import is not resolved' })
    await bed.builds.prepare(post)
    t.equal(bed.code('a'), '# flask', 'the rest is installed')
    t.match(bed.installer.recordOf(post), { last_install_status: 'ok', unresolved_imports: ['gone'] })
    t.same(bed.seen.fills, ['flask gone', 'flask'])

    const fresh = bed.again()
    fresh.retain(new Map([get, post].map(fn => [fn.key, fn])))
    await t.rejects(fresh.prepare(get), { message: 'install failed: an import is not resolved' })
    t.equal(bed.seen.fills.length, 2, 'a start does not ask the registry again')

    bed.tree.write({ 'a/wants.txt': 'flask' })
    const [edited] = twoOf(bed, '2')
    await bed.builds.prepare(edited)
    t.match(bed.installer.recordOf(edited), { last_install_status: 'ok', unresolved_imports: [] })
  },
)

t.test(
  '[dependencies/install.14] a failure is that of the imports which the tool names, or of all imports',
  async t => {
    for (const [failure, isDeclared, left] of [
      [{ kind: 'lasting', packageName: 'lefft' }, false, 'flask|lefft'],
      [{ kind: 'unknown', output: 'in other@1.0.0' }, false, 'flask lefft|other'],
      [{ kind: 'unknown' }, false, 'flask|lefft|other'],
      [{ kind: 'passing' }, false, null],
      [{ kind: 'lasting', packageName: 'lefft' }, true, null],
    ] as const) {
      const bed = makeBed(t, { 'a/wants.txt': 'flask lefft other' }, { isStrict: false })
      const { plan } = bed.step
      bed.step.plan = async (unit, toolchain, tools) => {
        const made = (await plan(unit, toolchain, tools))!
        const imports = ['lefft', 'other'].filter(name => !unit.failed.has(name))
        return {
          ...made,
          inferred: new Map(imports.map(name => [name, 'a/handler.py:1'])),
          declares: () => isDeclared,
          fill: (draft, work) =>
            unit.failed.size === 0 ? Promise.reject(new ToolFailure('no', failure)) : made.fill(draft, work),
        }
      }
      const done = bed.builds.prepare(bed.fn('a'))
      if (left === null) await t.rejects(done, { message: 'install failed: no' })
      else {
        await done
        const [kept, ...lost] = left.split('|')
        t.same(bed.seen.fills, [kept === 'flask' && lost.length === 1 ? 'flask other' : kept])
        t.match(bed.installer.recordOf(bed.fn('a')), { unresolved_imports: lost })
      }
    }
  },
)

t.test('[dependencies/install.14] without STRICT it is recorded and logged, and fails no function', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask gone', 'b/wants.txt': 'unknown' }, { isStrict: false })
  const [get, post] = twoOf(bed)
  await Promise.all([bed.builds.prepare(get), bed.builds.prepare(post)])
  t.match(bed.installer.recordOf(get), { last_install_status: 'ok', unresolved_imports: ['gone'] })
  t.equal(bed.seen.notes.length, 1)
  t.match(bed.seen.notes[0], 'an import is not resolved')
  await bed.builds.prepare(bed.fn('b'))
  t.match(bed.installer.recordOf(bed.fn('b')), { unresolved_imports: ['unknown'], resolved_packages: [] })
  t.notOk(existsSync(bed.tree.path('b/.deps/pack')), 'nothing is left to install')
})

t.test('[dependencies/install.6] a set that is no longer wanted is removed', async t => {
  for (const idle of ['nothing', 'unknown']) {
    const bed = makeBed(t, { 'a/wants.txt': 'flask' })
    await bed.builds.prepare(bed.fn('a'))
    bed.tree.write({ 'a/wants.txt': idle })
    const edited = bed.builds.prepare(bed.fn('a', { signature: '2' }))
    await (idle === 'nothing' ? edited : t.rejects(edited, { message: /an import is not resolved/ }))
    t.notOk(existsSync(bed.tree.path('a/.deps/pack')), idle)
  }
})

t.test('[dependencies/install.6] a folder without wishes is looked at once for all its functions', async t => {
  const bed = makeBed(t, { 'a/handler.py': '' })
  const both = twoOf(bed)
  t.same(
    both.map(fn => bed.installer.isNeeded(fn)),
    [false, false],
  )
  bed.tree.write({ 'a/wants.txt': 'flask' })
  t.equal(bed.installer.isNeeded(both[1]), false, 'the next reload looks again')
  bed.installer.retain(new Map())
  t.equal(bed.installer.isNeeded(both[1]), true)
})

t.test(
  '[dependencies/install.4] packages that are asked for by name are installed beside those of the manifest',
  async t => {
    const bed = makeBed(t, { 'a/wants.txt': 'flask' })
    const fn = bed.fn('a')
    await bed.builds.prepare(fn)
    t.ok(bed.builds.ask(fn, ['rich']))
    const edited = bed.fn('a', { signature: '2' })
    await bed.builds.prepare(edited)
    t.equal(bed.code('a'), '# flask rich')
    t.notOk(bed.builds.ask({ ...fn, runtime: 'lua' }, ['x']), 'nothing installs for this language')
  },
)

t.test('[dependencies/install.15] what another tool installs above the folder is a reason to try it again', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'bad one' })
  const fn = bed.fn('a')
  await t.rejects(bed.builds.prepare(fn))
  await t.rejects(bed.builds.prepare(fn))
  t.equal(bed.seen.fills.length, 1)
  bed.above.stamp = 'node_modules came'
  bed.tree.write({ 'a/wants.txt': 'good' })
  await bed.builds.prepare(fn)
  t.equal(bed.code('a'), '# good')
})

t.test('[dependencies/install.6] switched off, the record of an earlier install says so', async t => {
  const bed = makeBed(t, { 'a/wants.txt': 'flask' })
  await bed.builds.prepare(bed.fn('a'))
  const off = new Installer(
    { ...bed.step, isOn: false },
    { functionsRoot: bed.tree.root, clock: systemClock, isPrivate: false, packsOf: () => [] },
  )
  t.match(off.recordOf(bed.fn('a')), {
    resolved_packages: ['flask'],
    last_install_status: 'skipped',
    last_error: 'nothing is installed: FN_AUTO_TEST is off',
  })
  t.equal(off.recordOf(bed.fn('b')), null)
})

t.test('[dependencies/resolve.17] a look at one function does not look at all of them', async t => {
  const functions = new Map<string, FunctionVersion>()
  for (let i = 0; i < 500; i++) {
    const fn = makeFn({ name: `f${i}`, runtime: i % 2 === 0 ? 'python' : 'node', fnDir: `/r/d${i % 100}` })
    functions.set(fn.key, fn)
  }
  let walks = 0
  const counted = new Proxy(functions, {
    get: (target, name) => {
      if (name === 'values' || name === Symbol.iterator || name === 'entries') walks += 1
      const value = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  const units: number[] = []
  const step = {
    runtime: 'python',
    isOn: true,
    concurrency: 1,
    isAhead: true,
    isWanted: ({ functions }) => {
      units.push(functions.length)
      return false
    },
  } as Partial<InstallStep> as InstallStep
  const installer = new Installer(step, {
    functionsRoot: '/r',
    clock: systemClock,
    isPrivate: false,
    packsOf: () => [],
  })
  installer.retain(counted)
  for (const fn of functions.values()) if (fn.runtime === 'python') t.notOk(installer.isNeeded(fn))
  t.equal(walks, 1)
  t.same(new Set(units), new Set([5]), 'with those of its folder and runtime')
  t.equal(units.length, 50, 'one look for the functions of a folder, not one for each')
  installer.retain(new Map(functions))
  const [first] = functions.values()
  t.notOk(installer.isNeeded(first!))
  t.equal(units.length, 51, 'after a reload it is looked at again')
  t.notOk(installer.isNeeded(makeFn({ name: 'unknown', runtime: 'python', fnDir: '/r/new' })))
  t.notOk(installer.isNeeded(makeFn({ name: 'unknown', runtime: 'python', fnDir: '/r/new' })))
  t.equal(units.length, 53, 'what the catalog does not have is looked at each time')
})
