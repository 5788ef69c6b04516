import t from 'tap'
import { parseDotenv } from '../../lib/config/dotenv.ts'
import type { Finding } from '../../lib/config/findings.ts'

const SECRET = 'hunter2-planted'

function parse(text: string): { values: Record<string, string>; findings: Finding[] } {
  const findings: Finding[] = []
  return { values: parseDotenv(text, 'users/.env', findings), findings }
}

t.test('[config/function-env.12] the text of an env file', async t => {
  const { values, findings } = parse(
    '\uFEFFFIRST=1\r\n# comment\nexport SECOND = "a # b\\nc"\n\nTHIRD=\'x y\' # why\nEMPTY=\nFIRST=2\na.b-c=ok\n',
  )
  t.same(findings, [])
  t.same({ ...values }, { FIRST: '2', SECOND: 'a # b\nc', THIRD: 'x y', EMPTY: '', 'a.b-c': 'ok' })
  t.equal(Object.getPrototypeOf(values), null)
  t.same(parse('').values, parse('\n# nothing\n').values)
})

t.test('[config/function-env.12, config/function-env.5] a broken line is told without its value', async t => {
  for (const text of [
    `no equals sign ${SECRET}\nKEY=${SECRET}`,
    `1KEY=${SECRET}`,
    `K Y=${SECRET}`,
    `${'K'.repeat(300)}=${SECRET}`,
  ]) {
    const { values, findings } = parse(`${text}\nGOOD=1\n`)
    t.equal(values.GOOD, '1', 'the other lines are used')
    t.same(Object.keys(values), ['GOOD'], text)
    t.match(findings, [{ code: 'CONFIG_IGNORED_LINE', message: /^users\/\.env: line 1 is ignored: / }])
    t.notMatch(JSON.stringify(findings), SECRET)
  }
})
