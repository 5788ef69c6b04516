/** Questions at a terminal, for what was not given on the command line. Owner: page bin/init. */

import { createInterface } from 'node:readline/promises'
import type { Readable, Writable } from 'node:stream'
import { UsageError } from './usage-error.ts'

export interface Terminal {
  input: Readable
  /** Questions go to standard error: standard output is for the result. */
  output: Writable
}

export interface Question {
  text: string
  /** Taken for an empty answer. */
  fallback: string
  /** Returns what is wrong with an answer; null when it is right. */
  check: (answer: string) => string | null
}

/**
 * Asks one after the other, each again until its answer is right.
 * @throws UsageError when the input ends before the last answer
 */
export async function ask({ input, output }: Terminal, questions: readonly Question[]): Promise<string[]> {
  const reader = createInterface({ input, output })
  const ended = new Promise<never>((_, reject) => {
    reader.once('close', () => reject(new UsageError('no answer: give the name as an argument')))
  })
  // Do not keep the process alive once everything is answered.
  ended.catch(() => {})
  const answers: string[] = []
  try {
    for (const { text, fallback, check } of questions) {
      for (;;) {
        const answer = (await Promise.race([reader.question(`${text} (${fallback}): `), ended])).trim() || fallback
        const problem = check(answer)
        if (problem === null) {
          answers.push(answer)
          break
        }
        output.write(`  ${problem}\n`)
      }
    }
    return answers
  } finally {
    reader.close()
  }
}

/** A question whose answer is one of a list. */
export function oneOfQuestion(text: string, choices: readonly string[], fallback: string): Question {
  const list = choices.join(', ')
  return {
    text: `${text} [${list}]`,
    fallback,
    check: answer => (choices.includes(answer) ? null : `one of ${list}`),
  }
}
