import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { init, type InitRequest, toInitText } from '../../bin/init.ts'
import { toProgramName } from '../../bin/program-name.ts'
import { createGateway } from '../../lib/index.ts'
import { runCli } from '../helpers/cli.ts'

const make = (cwd: string, name: string, template: string, more: Partial<InitRequest> = {}) =>
  init({ cwd, functionsRoot: cwd, name, template, version: '0.0.0', ...more })

const NEXT = { program: 'npx fngw', port: 8080, methods: ['GET'], missing: null, isInstalled: true }

t.test('[bin/init.3, bin/init.4] nothing is overwritten, bad input is refused with the rule', async t => {
  const cwd = t.testdir({ there: { 'handler.js': 'mine' } })
  mkdirSync(join(cwd, 'config-there'))
  writeFileSync(join(cwd, 'config-there', 'fn.config.json'), '{}')
  const cases: [name: string, template: string, message: RegExp][] = [
    ['there', 'node', /there\/handler\.js is already there/],
    ['config-there', 'lua', /config-there\/fn\.config\.json is already there/],
    ['../up', 'node', /name must be segments of letters.*got "\.\.\/up"/],
    ['', 'node', /name must be/],
    ['a b', 'node', /name must be/],
    ['_x', 'node', /never served: private: the name starts with "_".*got "_x"/],
    ['a/_b/c', 'node', /never served: private/],
    ['src/a', 'node', /never served/],
    ['node_modules/a', 'node', /never served/],
    ['_fn', 'node', /never served|reserved/],
    ['console', 'node', /\/console is reserved/],
    ['console/x', 'api', /reserved/],
    ['ok', 'cobol', /--template must be one of node, ts.*api, spa.*got "cobol"/],
  ]
  for (const [name, template, message] of cases)
    t.throws(() => make(cwd, name, template), { message, exitCode: 2 }, name)
  t.throws(() => make(cwd, 'ok', 'spa', { methods: ['POST'] }), { message: /--method/, exitCode: 2 })
  t.equal(readFileSync(join(cwd, 'there', 'handler.js'), 'utf8'), 'mine')
  t.same(readdirSync(join(cwd, 'config-there')), ['fn.config.json'], 'not even half is written')
  t.same(readdirSync(cwd).sort(), ['config-there', 'there'])
})

t.test('[bin/init.5] what to do next is what has to be typed here', async t => {
  const cwd = t.testdir({})
  t.match(
    toInitText(make(cwd, 'a', 'lua'), NEXT),
    /created a\/handler\.lua\n[\s\S]*\n {2}npx fngw dev\n {2}curl 'http:\/\/127\.0\.0\.1:8080\/a\?name=you'\n/,
  )
  const go = toInitText(make(cwd, 'g', 'go'), { ...NEXT, program: 'fngw', methods: ['POST'], missing: 'get go' })
  t.match(go, /next:\n {2}get go\n {2}fngw dev\n {2}curl -X POST /)
  t.notMatch(go, /RUNTIMES/, 'other languages stay on')
  t.match(
    toInitText(make(cwd, 'n', 'node'), { ...NEXT, isInstalled: false }),
    /next:\n {2}npm i -D fngw\n {2}npx fngw dev\n/,
  )
  for (const [script, env, expected] of [
    ['/p/node_modules/.bin/fngw', {}, 'npx fngw'],
    ['/home/u/.npm/_npx/1/node_modules/.bin/fngw', {}, 'npx fngw'],
    ['/usr/bin/fngw', { npm_command: 'exec' }, 'npx fngw'],
    ['/usr/local/bin/fngw', { npm_command: 'run-script' }, 'fngw'],
    ['/usr/local/bin/fngw', {}, 'fngw'],
    ['/p/dist/bin/fngw.js', {}, 'node dist/bin/fngw.js'],
    ['/p/bin/fngw.ts', {}, 'npx tsx bin/fngw.ts'],
    ['/p/my app/fngw.js', {}, "node 'my app/fngw.js'"],
  ] as [string, Record<string, string>, string][])
    t.equal(toProgramName(script, env, '/p'), expected, script)
})

t.test('[bin/init.8] $schema leads an editor to the schema', async t => {
  const cwd = t.testdir({ node_modules: { fngw: { spec: { schema: { 'fn.config.schema.json': '{}' } } } }, sub: {} })
  const schemaOf = (folder: string) => JSON.parse(readFileSync(join(folder, 'fn.config.json'), 'utf8')).$schema
  const sub = join(cwd, 'sub')
  const installed = make(sub, 'a', 'node')
  t.equal(schemaOf(installed.folder), '../../node_modules/fngw/spec/schema/fn.config.schema.json')
  t.ok(existsSync(join(installed.folder, schemaOf(installed.folder))))
  const alone = make(t.testdir({}), 'a', 'node', { version: '1.2.3' })
  t.equal(schemaOf(alone.folder), 'https://unpkg.com/fngw@1.2.3/spec/schema/fn.config.schema.json')
})

t.test('[bin/init.3, bin/init.5] the command prints the result on standard output alone', async t => {
  const cwd = t.testdir({})
  const { stdout, status } = runCli(['init', 'b', '-t', 'python', '--json'], { cwd })
  t.same([status, JSON.parse(stdout).files], [0, ['b/handler.py', 'b/fn.config.json', '.gitignore']])
  const refused = runCli(['init', 'b', '-t', 'python'], { cwd })
  t.same([refused.status, refused.stdout], [2, ''])
  t.match(refused.stderr, /already there/)
})

t.test('[bin/init.11] a project gets a .gitignore, and keeps the one it has', async t => {
  const cwd = t.testdir({
    functions: { '.svc': { jobs: { a: '' }, packs: { node: { base: { 'package.json': '{}' } } } } },
  })
  writeFileSync(join(cwd, '.env.local'), 'KEY=1')
  init({ cwd, functionsRoot: join(cwd, 'functions'), name: 'b', template: 'node', version: '0.0.0' })
  const git = (...words: string[]) => spawnSync('git', words, { cwd, encoding: 'utf8' }).stdout
  git('init', '--quiet')
  git('add', '--all')
  t.same(git('ls-files').trim().split('\n'), [
    '.gitignore',
    'functions/.svc/packs/node/base/package.json',
    'functions/b/fn.config.json',
    'functions/b/handler.js',
  ])
  const kept = t.testdir({ '.gitignore': 'mine\n' })
  t.notOk(make(kept, 'b', 'node').files.includes('.gitignore'))
  t.equal(readFileSync(join(kept, '.gitignore'), 'utf8'), 'mine\n')
})

t.test('[bin/init.6] types for handlers say what really arrives', async t => {
  const cwd = t.testdir({})
  const { folder } = make(cwd, 'typed', 'python', { withTypes: true })
  t.same(readdirSync(folder).sort(), ['_fngw_types.py', 'fn.config.json', 'handler.py'])
  t.throws(() => make(cwd, 'other', 'node', { withTypes: true }), { message: /import type \{ FnEvent/, exitCode: 2 })
  writeFileSync(
    join(folder, 'handler.py'),
    [
      'from typing import get_type_hints',
      'from _fngw_types import FnContext, FnEvent',
      'def handler(event: FnEvent):',
      '    return {"event": sorted(event), "typed": sorted(get_type_hints(FnEvent)),',
      '            "context": sorted(event["context"]), "typed_context": sorted(get_type_hints(FnContext))}',
    ].join('\n'),
  )
  const gateway = await createGateway({ functionsRoot: cwd, runtimes: ['python'], env: process.env })
  t.teardown(() => gateway.close())
  const response = await gateway.inject('/typed')
  t.equal(response.status, 200, response.text())
  const answer = response.json() as Record<string, string[]>
  t.same(answer.event, answer.typed)
  t.same(answer.context, answer.typed_context)
  const types = readFileSync(new URL('../../lib/handler-types.ts', import.meta.url), 'utf8')
  const fieldsOf = (name: string): string[] => {
    const body = new RegExp(`interface ${name}[^{]*\\{\\n([\\s\\S]*?)\\n\\}`).exec(types)![1]!
    return [...body.matchAll(/^ {2}(?:readonly )?(\w+)\??:/gm)].map(match => match[1]!).sort()
  }
  t.same(
    fieldsOf('FnEvent').filter(name => name !== 'signal'),
    answer.event,
  )
  t.same(fieldsOf('FnContext'), answer.context)
})
