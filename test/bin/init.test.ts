import { spawnSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { init, toInitText } from '../../bin/init.ts'
import { TEMPLATE_NAMES } from '../../bin/templates.ts'
import { parseFunctionConfig } from '../../lib/config/function-config.ts'
import { createGateway } from '../../lib/gateway.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { TEMPLATES } from '../../bin/templates.ts'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { injectBuilt, shareCrates } from '../helpers/compiled.ts'

t.test('[bin/init.1, bin/init.2] every template answers as it stands', async t => {
  const cwd = t.testdir({})
  const available: string[] = []
  for (const template of TEMPLATE_NAMES) {
    const result = init(cwd, `say/hello-${template}`, template)
    t.equal(result.urlPath, `/say/hello-${template}`)
    t.same(readdirSync(result.folder).sort(), ['fn.config.json', TEMPLATES[template].fileName].sort())
    t.same(parseFunctionConfig(readFileSync(join(result.folder, 'fn.config.json'), 'utf8'), 'x').problems, [])
    const runtime = TEMPLATES[template].runtime as RuntimeName
    const { problem } = findProgram(runtime, {}, process.env.PATH ?? '')
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
    ['ok', 'cobol', /--template must be one of node, ts.*got "cobol"/],
  ]
  for (const [name, template, message] of cases)
    t.throws(() => init(cwd, name, template), { message, exitCode: 2 }, name)
  t.equal(readFileSync(join(cwd, 'there', 'handler.js'), 'utf8'), 'mine')
  t.same(readdirSync(join(cwd, 'config-there')), ['fn.config.json'], 'not even half is written')
})

t.test('[bin/init.5] the command prints the files and what to do next', async t => {
  const cwd = t.testdir({})
  t.match(
    toInitText(init(cwd, 'a', 'lua')),
    /created a\/handler\.lua[\s\S]*fngw dev --native[\s\S]*curl 'http:.*\/a\?name=you'/,
  )
  t.match(toInitText(init(cwd, 'g', 'go')), /\n {2}FN_RUNTIMES=go fngw dev --native\n/)
  const program = new URL('../../bin/fngw.ts', import.meta.url).pathname
  const tsx = import.meta.resolve('tsx')
  const run = (...args: string[]) =>
    spawnSync(process.execPath, ['--import', tsx, program, 'init', ...args], { cwd, encoding: 'utf8' })
  const { stdout, status } = run('b', '-t', 'python', '--json')
  t.same([status, JSON.parse(stdout).files], [0, ['b/handler.py', 'b/fn.config.json']])
  const refused = run('b', '-t', 'python')
  t.same([refused.status, refused.stdout], [2, ''])
  t.match(refused.stderr, /already there/)
})

t.test('[bin/init.6] types for handlers say what really arrives', async t => {
  const cwd = t.testdir({})
  const { folder } = init(cwd, 'typed', 'python', true)
  t.same(readdirSync(folder).sort(), ['_fngw_types.py', 'fn.config.json', 'handler.py'])
  t.throws(() => init(cwd, 'other', 'node', true), { message: /import type \{ FnEvent/, exitCode: 2 })
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
