/** Every case, in the order in which they are run. Owner: page bin/conformance. */

import { ANSWER_CASES } from './answer-cases.ts'
import type { Case } from './case.ts'
import { EVENT_CASES } from './event-cases.ts'
import { FAILURE_CASES } from './failure-cases.ts'

export const CASES: readonly Case[] = [...ANSWER_CASES, ...EVENT_CASES, ...FAILURE_CASES]
