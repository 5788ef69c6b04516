/** The request as text that sends it from elsewhere. Owner: page console/try. */

import { useState } from 'preact/hooks'
import { CopyButton } from '../../parts/copy-button.tsx'
import { TextBox } from '../../parts/text-box.tsx'
import { toPublicUrl } from './send.ts'
import { type SnippetRequest, toCurl, toFetch, toPython } from './snippets.ts'
import { hasBody, namedFields, toHeaders, type TryRequest } from './try-request.ts'

const FORMS = { curl: toCurl, fetch: toFetch, 'Python requests': toPython } as const
type Form = keyof typeof FORMS

export function CopyAs({ request, origin }: { request: TryRequest; origin: string }) {
  const [form, setForm] = useState<Form>('curl')
  const text = FORMS[form](toSnippet(request, origin))
  return (
    <details class="copy-as">
      <summary>As a command</summary>
      <div class="tools">
        <select aria-label="Copy as" value={form} onChange={event => setForm(event.currentTarget.value as Form)}>
          {Object.keys(FORMS).map(name => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <CopyButton text={text} title="Copy" />
      </div>
      <TextBox label="Command" text={text} />
    </details>
  )
}

function toSnippet(request: TryRequest, origin: string): SnippetRequest {
  const { method, path, as, text, file } = request
  const body = !hasBody(request)
    ? null
    : as === 'file'
      ? { kind: 'file' as const, name: file?.name ?? 'file' }
      : as === 'form'
        ? { kind: 'form' as const, fields: namedFields(request) }
        : { kind: 'text' as const, text }
  return { method, url: toPublicUrl(path, origin).href, headers: toHeaders(request), body }
}
