/** The schemas of a gateway: what reads them, and what holds calls against them. Owner: page validation/request-schema. */

import type { Settings } from './config/settings.ts'
import { type DifferenceListener, SchemaGate } from './invocation/policy.ts'
import type { Journal } from './observe/journal.ts'
import { createFileReader } from './files/function-file.ts'
import { SchemaStore } from './validation/schema-store.ts'

interface SchemaParts {
  store: SchemaStore
  gate: SchemaGate
}

export function createSchemaParts(
  settings: Pick<Settings, 'functionsRoot' | 'production' | 'isolation'>,
  journal: Pick<Journal, 'warn'>,
): SchemaParts {
  const { functionsRoot, production } = settings
  const store = new SchemaStore(functionsRoot, !production, createFileReader(settings))
  const tell: DifferenceListener = (fn, method, status, { name, text }) => {
    const path = fn.schema?.path ?? fn.entryFile
    journal.warn({
      code: 'ANSWER_DIFFERS',
      path,
      message: `${fn.entryFile}: its answer ${status} to ${method} differs from ${path}: ${name} ${text}`,
      hint: 'Mend the handler or the schema. Answers are not looked at in production.',
    })
  }
  return { store, gate: new SchemaGate(store, production ? null : tell) }
}
