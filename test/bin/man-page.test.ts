import { spawnSync } from 'node:child_process'
import { Command, Option } from 'commander'
import t from 'tap'
import { readCommands } from '../../bin/command-tree.ts'
import { toManPage } from '../../bin/man-page.ts'
import { createProgram } from '../../bin/program.ts'

const quiet = {} as Parameters<typeof createProgram>[0]['output']
const program = createProgram({ output: quiet, version: '9.9.9', program: 'fngw', terminal: null })

/** The page as a terminal of any width would show it; null without groff. */
function render(page: string): { text: string; complaints: string } | null {
  const groff = spawnSync('groff', ['-man', '-Tascii', '-ww', '-P-cbou', '-rLL=1000n'], {
    input: page,
    encoding: 'utf8',
  })
  return groff.error === undefined ? { text: groff.stdout, complaints: groff.stderr } : null
}

t.test('[bin/completion.3] each command and each flag is in the manual page', async t => {
  const page = toManPage(readCommands(program), '9.9.9')
  const plain = page.replaceAll('\\-', '-')
  t.match(page, /^\.TH FNGW 1 "" "fngw 9\.9\.9"/)
  let count = 0
  const visit = (command: Command, words: string): void => {
    if (command.commands.length === 0) t.ok(plain.includes(`\n.SS ${words}`), words)
    const [, part = ''] = plain.split(new RegExp(`\\n\\.SS ${words} (?=[<[])`))
    for (const option of command.options) {
      const place = option.hidden || words === 'fngw' ? plain : part.split(/\n\.S[SH] /)[0]!
      t.ok(place.includes(`\n\\fB${option.flags}\\fR\n`), `${words} ${option.flags}`)
      count += 1
    }
    for (const below of command.commands) visit(below, `${words} ${below.name()}`)
  }
  visit(program, 'fngw')
  t.ok(count > 100, `${count} flags`)
  t.equal(toManPage(readCommands(program), '9.9.9'), page, 'the same for the same commands')
})

t.test('[bin/completion.3] it is roff that groff takes, whatever the texts hold', async t => {
  const hostile = new Command('fngw').description('.Starts \\n with "a dot".')
  hostile.command('one').description("'br of \\fBroff\\fR").addOption(new Option('--a-b <x>', '.so /etc/passwd'))
  for (const [name, command] of [
    ['the program', program],
    ['hostile texts', hostile],
  ] as const) {
    const shown = render(toManPage(readCommands(command), '1'))
    if (shown === null) return t.pass(name, { skip: 'groff is not installed' })
    t.equal(shown.complaints, '', name)
    if (command !== hostile) t.match(shown.text, 'fngw completion <shell> [flags]')
    else
      for (const text of ["'br of \\fBroff\\fR", '.so /etc/passwd', '--a-b <x>', '\\n with "a dot"'])
        t.match(shown.text, text)
  }
})
