/** Makes a function, or a version of one, from the template of its language. Owner: page console/functions. */

import { useState } from 'preact/hooks'
import { send } from '../../data/api.ts'
import { toFunctionPage } from '../../data/function-records.ts'
import { Dialog } from '../../parts/dialog.tsx'
import { SendingForm } from '../../parts/sending-form.tsx'
import { navigate, toHref } from '../../router.ts'
import { whyReadOnly } from '../../session.ts'

interface CreateProps {
  runtimes: readonly string[]
  /** A version of this function is made instead of another function. */
  of?: { runtime: string; name: string }
}

export function CreateButton({ runtimes, of }: CreateProps) {
  const [isOpen, setOpen] = useState(false)
  const title = of === undefined ? 'New function' : 'New version'
  const close = (): void => setOpen(false)
  return (
    <>
      <button
        type="button"
        disabled={whyReadOnly.value !== null}
        title={whyReadOnly.value ?? undefined}
        onClick={() => setOpen(true)}
      >
        {title}
      </button>
      <Dialog title={title} isOpen={isOpen} onClose={close}>
        <CreateForm runtimes={runtimes} {...(of !== undefined && { of })} onClose={close} />
      </Dialog>
    </>
  )
}

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']

function CreateForm({ runtimes, of, onClose }: CreateProps & { onClose: () => void }) {
  const create = async (fields: FormData): Promise<void> => {
    const text = (name: string): string => String(fields.get(name) ?? '').trim()
    const id = {
      runtime: of?.runtime ?? text('runtime'),
      name: of?.name ?? text('name'),
      version: text('version') || 'default',
    }
    const route = text('route')
    const body = { methods: fields.getAll('methods'), ...(route !== '' && { route }) }
    await send('POST', '/_fn/function', body, { ...id })
    onClose()
    navigate(toHref(toFunctionPage(id), { tab: 'code' }))
  }
  return (
    <SendingForm class="form" action="Create" onSend={create} onCancel={onClose}>
      <h2>{of === undefined ? 'New function' : `New version of ${of.name}`}</h2>
      {of === undefined && (
        <>
          <label>
            Name
            <input name="name" required autofocus autocomplete="off" spellcheck={false} placeholder="hello" />
            <small>The name is also the path: hello serves /hello, shop/cart serves /shop/cart.</small>
          </label>
          <label>
            Runtime
            <select name="runtime">
              {runtimes.map(runtime => (
                <option key={runtime}>{runtime}</option>
              ))}
            </select>
          </label>
        </>
      )}
      <label>
        Version
        <input
          name="version"
          required={of !== undefined}
          autocomplete="off"
          spellcheck={false}
          placeholder={of === undefined ? 'none' : 'v2'}
        />
        {of !== undefined && <small>It serves /{of.name}@v2, in addition to the existing versions.</small>}
      </label>
      <fieldset class="checks">
        <legend>Methods</legend>
        {METHODS.map(method => (
          <label key={method}>
            <input type="checkbox" name="methods" value={method} defaultChecked={method === 'GET'} /> {method}
          </label>
        ))}
      </fieldset>
      <label>
        Additional route
        <input name="route" autocomplete="off" spellcheck={false} placeholder="/greet/:name" />
      </label>
    </SendingForm>
  )
}
