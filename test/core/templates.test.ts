import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { init } from '../../bin/init.ts'
import { isLanguage, LANGUAGE_NAMES, TEMPLATE_NAMES, TEMPLATES, toConfigText } from '../../lib/core/templates.ts'
import { parseFunctionConfig } from '../../lib/config/function-config.ts'
import type { RuntimeName } from '../../lib/core/identity.ts'
import { createGateway } from '../../lib/index.ts'
import { findProgram } from '../../lib/runtime/binaries.ts'
import { injectBuilt, shareCrates } from '../helpers/compiled.ts'

// Builds of go and rust on a machine with other work to do.
t.setTimeout(180_000)

t.test('[bin/init.1, bin/init.2] every template of a language answers as it stands', async t => {
  const cwd = t.testdir({})
  const available: string[] = []
  for (const template of LANGUAGE_NAMES) {
    const result = init({
      cwd,
      functionsRoot: cwd,
      name: `say/hello-${template}`,
      template,
      version: '0.0.0',
    })
    t.equal(result.urlPath, `/say/hello-${template}`)
    t.same(readdirSync(result.folder).sort(), ['fn.config.json', TEMPLATES[template].fileName].sort())
    t.same(parseFunctionConfig(readFileSync(join(result.folder, 'fn.config.json'), 'utf8'), 'x').warnings, [])
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

t.test('[bin/init.4, bin/init.8, bin/init.10] names of templates, and the config of each', async t => {
  t.same(TEMPLATE_NAMES.filter(isLanguage), [...LANGUAGE_NAMES])
  t.same(['api', 'spa', 'cobol', '', '__proto__'].filter(isLanguage), [])
  for (const name of LANGUAGE_NAMES) {
    const config = JSON.parse(toConfigText(TEMPLATES[name], 'schema.json', ['PUT']))
    t.match(config, { $schema: 'schema.json', entrypoint: TEMPLATES[name].fileName, invoke: { methods: ['PUT'] } })
  }
})
