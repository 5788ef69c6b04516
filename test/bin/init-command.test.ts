import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import t from 'tap'
import { type InitFlags, type InitSurroundings, runInit } from '../../bin/init-command.ts'

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

t.test('[bin/init.12] go and rust are enabled in the project file', async t => {
  const read = (cwd: string, file = 'fngw.json') => readFileSync(join(cwd, file), 'utf8')
  const empty = t.testdir({})
  const { text } = await command(empty, 'a', { template: 'go' })
  t.match(text, /created .gitignore\nenabled the language in fngw\.json\n/)
  t.notMatch(text, /add go to/)
  t.equal(read(empty), '{\n  "runtimes": ["python", "node", "php", "lua", "go"]\n}\n')
  const { text: json } = await command(empty, 'b', { template: 'rust', json: true })
  t.same(JSON.parse(json).files, ['b/handler.rs', 'b/fn.config.json', 'fngw.json'])
  t.same(JSON.parse(read(empty)).runtimes, ['python', 'node', 'php', 'lua', 'go', 'rust'])
  t.notMatch((await command(empty, 'c', { template: 'go' })).text, /enabled/, 'once')
  const kept = t.testdir({ 'fngw.json': '{\n    "port": 1,\n    "runtimes": ["node"]\n}\n' })
  await command(kept, 'a', { template: 'go' })
  t.equal(read(kept), '{\n    "port": 1,\n    "runtimes": ["node", "go"]\n}\n')
  const packed = t.testdir({ 'package.json': '{\n  "name": "x",\n  "fngw": { "port": 1 }\n}\n' })
  await command(packed, 'a', { template: 'go' })
  t.same(JSON.parse(read(packed, 'package.json')), {
    name: 'x',
    fngw: { port: 1, runtimes: ['python', 'node', 'php', 'lua', 'go'] },
  })
  const named = t.testdir({ '.env': 'FN_RUNTIMES=node' })
  t.match((await command(named, 'a', { template: 'go' })).text, /add go to the runtimes that are named/)
  t.notOk(existsSync(join(named, 'fngw.json')), 'FN_RUNTIMES would replace what is written')
})

t.test('[bin/init.10] without a name it asks at a terminal, and only there', async t => {
  const cwd = t.testdir({})
  const { text, asked } = await command(cwd, undefined, {}, ['_no', 'pets', 'cobol', 'python', 'post', 'POST', ''])
  t.match(text, /created pets\/handler\.py[\s\S]*curl -X POST /)
  t.match(asked, /Name[\s\S]*never served[\s\S]*Name[\s\S]*Language[\s\S]*one of node[\s\S]*Method[\s\S]*one of GET/)
  t.same(JSON.parse(readFileSync(join(cwd, 'pets', 'fn.config.json'), 'utf8')).invoke.methods, ['POST'])
  t.match(
    (await command(cwd, undefined, {}, ['', '', '', ''])).text,
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

t.test('[bin/init.13] --vscode writes how VS Code attaches to the languages of the tree, over nothing', async t => {
  const handlers = { 'a.ts': '', 'b.py': 'def handler(event): return 1', 'c.php': '<?php', 'd.lua': '' }
  const cwd = t.testdir(handlers)
  const read = (folder: string, file: string) => JSON.parse(readFileSync(join(folder, '.vscode', file), 'utf8'))
  const { text } = await command(cwd, undefined, { vscode: true })
  t.equal(text, 'created .vscode/launch.json\ncreated .vscode/extensions.json')
  const { configurations } = read(cwd, 'launch.json')
  t.match(configurations, [
    { type: 'node', request: 'attach', port: 9229, restart: true },
    { type: 'debugpy', request: 'attach', connect: { host: '127.0.0.1', port: 5678 } },
    { type: 'php', request: 'launch', port: 9003 },
  ])
  t.same(read(cwd, 'extensions.json'), { recommendations: ['ms-python.debugpy', 'xdebug.php-debug'] })
  await t.rejects(command(cwd, 'hello', { vscode: true }), {
    message: /^\.vscode\/launch\.json is already there/,
    exitCode: 2,
  })
  t.notOk(existsSync(join(cwd, 'hello')), 'nothing else is written either')
  const { text: json } = await command(t.testdir({}), 'hello', { vscode: true, json: true })
  t.same(JSON.parse(json).files.slice(-1), ['.vscode/launch.json'])
  const lua = t.testdir({ 'd.lua': '' })
  await t.rejects(command(lua, undefined, { vscode: true }), {
    message: /Node\.js, TypeScript, Python and PHP/,
    exitCode: 2,
  })
  const linked = t.testdir({
    outside: {},
    folder: { 'a.js': '', '.vscode': t.fixture('symlink', '../outside') },
    file: { 'a.js': '', '.vscode': { 'launch.json': t.fixture('symlink', '../../outside/launch.json') } },
    taken: { 'a.js': '', '.vscode': 'a file' },
  })
  for (const [name, message] of [
    ['folder', /^\.vscode is not a folder, nothing was written/],
    ['file', /^\.vscode\/launch\.json is already there/],
    ['taken', /^\.vscode is not a folder, nothing was written/],
  ] as const)
    await t.rejects(command(join(linked, name), undefined, { vscode: true }), { message, exitCode: 2 }, name)
  t.same(readdirSync(join(linked, 'outside')), [])
  const asked = t.testdir({})
  await command(asked, undefined, {}, ['hello', 'python', 'GET', 'yes'])
  t.match(read(asked, 'launch.json').configurations, [{ type: 'debugpy' }])
})
