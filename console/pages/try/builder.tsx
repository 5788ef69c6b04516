/** The request on the page Try: method, path, headers, body. Owner: page console/try. */

import type { RouteClaim } from '../../data/records.ts'
import { toHref } from '../../router.ts'
import { BODY_KINDS, type BodyKind, type FormField, hasBody, type TryRequest } from './try-request.ts'
import { ChoiceField } from '../../parts/choice-field.tsx'

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS']
/** Routes that are suggested at once. */
const MOST_SUGGESTIONS = 50

const KIND_TEXTS: Readonly<Record<BodyKind, string>> = {
  none: 'None',
  json: 'JSON',
  text: 'Text',
  form: 'Form',
  file: 'File',
}

interface BuilderProps {
  request: TryRequest
  routes: Readonly<Record<string, readonly RouteClaim[]>>
  onChange: (change: Partial<TryRequest>) => void
}

export function Builder({ request, routes, onChange }: BuilderProps) {
  const { method, path, headers } = request
  const paths = Object.keys(routes)
  const suggested = paths.filter(route => route.includes(path.split('?', 1)[0]!)).slice(0, MOST_SUGGESTIONS)
  return (
    <>
      <div class="try-line">
        <ChoiceField label="Method" value={method} choices={METHODS} onChange={value => onChange({ method: value })} />
        <input
          aria-label="Path"
          class="mono"
          list="try-routes"
          spellcheck={false}
          autocomplete="off"
          value={path}
          data-search
          onInput={event => onChange({ path: event.currentTarget.value })}
        />
        <datalist id="try-routes">
          {suggested.map(route => (
            <option value={route} key={route} />
          ))}
        </datalist>
      </div>
      <RouteHint request={request} routes={routes} />
      <label class="field">
        Headers <small>Name: value, one per line</small>
        <textarea
          class="mono"
          rows={Math.min(8, Math.max(2, headers.split('\n').length))}
          spellcheck={false}
          value={headers}
          onInput={event => onChange({ headers: event.currentTarget.value })}
        />
      </label>
      <Body request={request} onChange={onChange} />
    </>
  )
}

/** Information about the route while it is typed. */
function RouteHint({ request: { method, path }, routes }: Omit<BuilderProps, 'onChange'>) {
  const plain = path.split('?', 1)[0] ?? ''
  const claims = routes[plain]
  const param = /\/(:[\w-]+\*?|\*)/.exec(plain)?.[1]
  const methods = [...new Set(claims?.flatMap(claim => claim.methods) ?? [])]
  return (
    <p class="quiet try-hint">
      {param !== undefined
        ? `Replace ${param} with a value.`
        : claims !== undefined && !methods.includes(method) && !(method === 'HEAD' && methods.includes('GET'))
          ? `This route allows ${methods.join(', ')}.`
          : ''}{' '}
      <a href={toHref('routes', { method, path: plain })}>Which function serves this?</a>
    </p>
  )
}

function Body({ request, onChange }: Omit<BuilderProps, 'routes'>) {
  const { as, text } = request
  const canHave = request.method !== 'GET' && request.method !== 'HEAD'
  return (
    <>
      <fieldset class="choice" disabled={!canHave}>
        <legend>Body</legend>
        {BODY_KINDS.map(kind => (
          <label key={kind}>
            <input type="radio" name="body" checked={as === kind} onChange={() => onChange({ as: kind })} />{' '}
            {KIND_TEXTS[kind]}
          </label>
        ))}
        {!canHave && <small>{request.method} has no body</small>}
      </fieldset>
      {hasBody(request) && (as === 'json' || as === 'text') && (
        <textarea
          aria-label="Body"
          class="mono"
          rows={10}
          spellcheck={false}
          placeholder={as === 'json' ? '{ "name": "Ana" }' : ''}
          value={text}
          onInput={event => onChange({ text: event.currentTarget.value })}
        />
      )}
      {hasBody(request) && as === 'form' && (
        <Fields fields={request.fields} onFields={fields => onChange({ fields })} />
      )}
      {hasBody(request) && as === 'file' && (
        <input
          type="file"
          aria-label="File to send"
          onChange={event => onChange({ file: event.currentTarget.files?.[0] ?? null })}
        />
      )}
    </>
  )
}

interface FieldsProps {
  fields: readonly FormField[]
  onFields: (fields: readonly FormField[]) => void
}

/** With a file among them they are sent as multipart, else as a plain form. */
function Fields({ fields, onFields }: FieldsProps) {
  const put = (index: number, change: Partial<FormField>): void =>
    onFields(fields.map((field, at) => (at === index ? { ...field, ...change } : field)))
  return (
    <div class="try-fields">
      {fields.map((field, index) => (
        // Rows have no other identity than their place.
        <div class="try-field" key={index}>
          <input
            aria-label={`Name of field ${index + 1}`}
            placeholder="name"
            value={field.name}
            onInput={event => put(index, { name: event.currentTarget.value })}
          />
          {field.file === null ? (
            <input
              aria-label={`Value of field ${index + 1}`}
              placeholder="value"
              value={field.value}
              onInput={event => put(index, { value: event.currentTarget.value })}
            />
          ) : (
            <span class="quiet">{field.file.name}</span>
          )}
          <input
            type="file"
            aria-label={`File of field ${index + 1}`}
            onChange={event => put(index, { file: event.currentTarget.files?.[0] ?? null })}
          />
          <button
            type="button"
            aria-label={`Remove field ${index + 1}`}
            onClick={() => onFields(fields.filter((_, at) => at !== index))}
          >
            ×
          </button>
        </div>
      ))}
      <button type="button" onClick={() => onFields([...fields, { name: '', value: '', file: null }])}>
        Add field
      </button>
    </div>
  )
}
