import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import t from 'tap'
import { init, type InitRequest, toInitText } from '../../bin/init.ts'
import { type InitFlags, type InitSurroundings, runInit } from '../../bin/init-command.ts'
import { toProgramName } from '../../bin/program-name.ts'
import { LANGUAGE_NAMES, TEMPLATES } from '../../bin/templates.ts'
import { parseFunctionConfig } from '../../lib/config/function-config.ts'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { createGateway } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { runCli } from '../helpers/cli.ts'
import { injectBuilt, shareCrates } from '../helpers/compiled.ts'

const make = (cwd: string, name: string, template: string, more: Partial<InitRequest> = {}) =>
  init({ cwd, functionsRoot: cwd, name, template, version: '0.0.0', ...more })

const NEXT = { program: 'npx fngw', port: 8080, methods: ['GET'], missing: null }

t.test('[bin/init.1, bin/init.2] every template of a language answers as it stands', async t => {
  const cwd = t.testdir({})
  const available: string[] = []
  for (const template of LANGUAGE_NAMES) {
    const result = make(cwd, `say/hello-${template}`, template)
    t.equal(result.urlPath, `/say/hello-${template}`)
    t.same(readdirSync(result.folder).sort(), ['fn.config.json', TEMPLATES[template].fileName].sort())
    t.same(parseFunctionConfig(readFileSync(join(result.folder, 'fn.config.json'), 'utf8'), 'x').problems, [])
    const { problem } = findProgram(TEMPLATES[template].runtime, {}, process.env.PATH ?? '')
    if (problem === null) available.push(template)
    else t.comment(`${template} is not run: ${problem}`)
  }
  const runtimes = [...new Set(available.map(template => TEMPLATES[template as 'node'].runtime as RuntimeName))]
  const gateway = await createGateway({ functionsRoot: cwd, runtimes, env: { ...process.env, ...shareCrates() } })
  t.teardown(() => gateway.close())
  for (const template of available) {
    const response = await injectBuilt(gateway, `/say/hello-${template}?name=Kim`)
    t.same([response.status, response.json()], [200, { message: 'Hello, Kim!', method: 'GET' }], template)
  }
})

t.test('[bin/init.7] api is three routes, spa a page and its function', async t => {
  const cwd = t.testdir({})
  t.equal(make(cwd, 'items', 'api').urlPath, '/items')
  const spa = make(cwd, 'greet', 'spa')
  t.same([spa.urlPath, spa.files], ['/', ['fn.config.json', 'public/index.html', 'public/app.js', 'api/greet.js']])
  const gateway = await createGateway({ functionsRoot: cwd, env: process.env })
  t.teardown(() => gateway.close())
  t.same(gateway.warnings, [])
  const get = async (url: string) => {
    const response = await gateway.inject(url)
    return [response.status, response.json()]
  }
  t.match(await get('/items'), [200, { items: [{ id: '1' }, { id: '2' }] }])
  t.same(await get('/items/2'), [200, { id: '2', name: 'second' }])
  t.same(await get('/items/9'), [404, { error: 'no item 9' }])
  const post = (body: string) => gateway.inject({ method: 'POST', url: '/items', body })
  const created = await post('{"name":"third"}')
  t.match([created.status, created.json(), created.headers.location], [201, { name: 'third' }, /^\/items\/[\w-]{36}$/])
  for (const body of ['', 'no json', '{}', 'null']) t.equal((await post(body)).status, 400, body)
  t.match((await gateway.inject('/')).text(), /<script type="module" src="\/app\.js">/)
  t.match((await gateway.inject('/app.js')).text(), /fetch\('\/api\/greet/)
  t.match((await gateway.inject({ url: '/some/page', headers: { Accept: 'text/html' } })).text(), /<main>/)
  t.same(await get('/api/greet?name=Kim'), [200, { message: 'Hello, Kim!' }])
})

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
  for (const [script, env, expected] of [
    ['/p/node_modules/.bin/fngw', {}, 'npx fngw'],
    ['/home/u/.npm/_npx/1/node_modules/.bin/fngw', {}, 'npx fngw'],
    ['/usr/bin/fngw', { npm_command: 'exec' }, 'npx fngw'],
    ['/usr/local/bin/fngw', { npm_command: 'run-script' }, 'fngw'],
    ['/usr/local/bin/fngw', {}, 'fngw'],
    ['/p/dist/bin/fngw.js', {}, 'node dist/bin/fngw.js'],
    ['/p/bin/fngw.ts', {}, 'npx tsx bin/fngw.ts'],
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

/** Runs the command with a person who gives these answers; null is nobody. */
async function command(cwd: string, name: string | undefined, flags: InitFlags, answers: string[] | null = null) {
  const input = new PassThrough()
  const output = new PassThrough()
  let asked = ''
  output.on('data', chunk => {
    asked += String(chunk)
    // One answer per question, as a person gives them.
    if (/\): $/.test(asked) && answers !== null) {
      const answer = answers.shift()
      if (answer === undefined) input.end()
      else input.write(`${answer}\n`)
      asked += '\n'
    }
  })
  const surroundings: InitSurroundings = {
    cwd,
    env: { PATH: process.env.PATH },
    terminal: answers === null ? null : { input, output },
    program: 'fngw',
    version: '0.0.0',
  }
  const text = await runInit(name, flags, surroundings)
  return { text, asked }
}

t.test('[bin/init.9] the project file says where functions are and which port', async t => {
  const cwd = t.testdir({ 'fngw.json': '{ "functions-dir": "functions", "port": 4000 }' })
  const { text } = await command(cwd, 'api/a', {})
  t.match(text, /created functions\/api\/a\/handler\.js[\s\S]*curl 'http:\/\/127\.0\.0\.1:4000\/api\/a\?name=you'/)
  t.ok(existsSync(join(cwd, 'functions', 'api', 'a', 'handler.js')))
  const grouped = await command(cwd, 'python/b', { template: 'python', json: true })
  t.equal(JSON.parse(grouped.text).urlPath, '/b', "a runtime's folder is no part of the path")
  const broken = t.testdir({ 'fngw.json': '{ "port": "many" }' })
  await t.rejects(command(broken, 'a', {}), { name: 'SettingsError', message: /port must be/ })
  const named = t.testdir({ 'fngw.json': '{ "runtimes": ["python"] }' })
  t.match((await command(named, 'a', {})).text, /next:\n {2}add node to the runtimes that are named/)
})

t.test('[bin/init.10] without a name it asks at a terminal, and only there', async t => {
  const cwd = t.testdir({})
  const { text, asked } = await command(cwd, undefined, {}, ['_no', 'pets', 'cobol', 'python', 'post', 'POST'])
  t.match(text, /created pets\/handler\.py[\s\S]*curl -X POST /)
  t.match(asked, /Name[\s\S]*never served[\s\S]*Name[\s\S]*Language[\s\S]*one of node[\s\S]*Method[\s\S]*one of GET/)
  t.same(JSON.parse(readFileSync(join(cwd, 'pets', 'fn.config.json'), 'utf8')).invoke.methods, ['POST'])
  t.match(
    (await command(cwd, undefined, {}, ['', '', ''])).text,
    /created hello\/handler\.js/,
    'empty answers are defaults',
  )
  await t.rejects(command(cwd, undefined, {}, ['other']), { message: /no answer/ })
  await t.rejects(command(cwd, undefined, {}), { message: /name is missing.*-y/, exitCode: 2 })
  t.match(
    (await command(t.testdir({}), undefined, { yes: true }, [])).text,
    /created hello\/handler\.js/,
    '-y asks nothing',
  )
  t.match((await command(cwd, 'named', { template: 'lua' }, [])).text, /created named\/handler\.lua/)
  await t.rejects(command(cwd, 'm', { method: 'BREW' }), { message: /--method must be one of GET/, exitCode: 2 })
})

t.test('[bin/init.3, bin/init.5] the command prints the result on standard output alone', async t => {
  const cwd = t.testdir({})
  const { stdout, status } = runCli(['init', 'b', '-t', 'python', '--json'], { cwd })
  t.same([status, JSON.parse(stdout).files], [0, ['b/handler.py', 'b/fn.config.json']])
  const refused = runCli(['init', 'b', '-t', 'python'], { cwd })
  t.same([refused.status, refused.stdout], [2, ''])
  t.match(refused.stderr, /already there/)
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
