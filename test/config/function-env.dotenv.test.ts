import t from 'tap'
import { parseDotenv } from '../../lib/config/function-env.ts'
import type { Finding } from '../../lib/config/fields.ts'

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

t.test(
  '[config/function-env.12] quotes may span lines, and what stands in them is no line of another form',
  async t => {
    const { values, findings } = parse(
      'PEM="-----BEGIN\nMIIE+x/y==\n-----END"\nTICK=`a\n"b"\nc`\nOPEN="never closed\nNEXT=1\nIT=\'s\nfine\'\n',
    )
    t.same(findings, [])
    t.match(values, { PEM: '-----BEGIN\nMIIE+x/y==\n-----END', TICK: 'a\n"b"\nc', NEXT: '1', IT: 's\nfine' })
  },
)

t.test(
  '[config/function-env.12, config/function-env.5] a line of another form is named by its number, the rest is used',
  async t => {
    const cases = [
      `no equals sign ${SECRET}`,
      `1KEY=${SECRET}`,
      `K Y=${SECRET}`,
      `${'K'.repeat(300)}=${SECRET}`,
      `KEY=${SECRET}\0`,
      `=${SECRET}`,
      `: ${SECRET}`,
    ]
    for (const line of cases) {
      const { values, findings } = parse(`FIRST=1\n${line}\nGOOD=1\n`)
      t.same({ ...values }, { FIRST: '1', GOOD: '1' }, JSON.stringify(line))
      t.match(findings, [{ code: 'CONFIG_IGNORED_LINE', message: /^users\/\.env: line 2 is ignored: / }])
      t.equal(findings.length, 1)
      t.notMatch(JSON.stringify(findings), SECRET)
    }
  },
)
