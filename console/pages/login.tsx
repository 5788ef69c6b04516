/** Logging in with the admin token, or with a name and its password. Credentials are sent once and not stored. Owner: page console/console. */

import { useState } from 'preact/hooks'
import type { ApiError } from '../data/api.ts'
import { Page } from '../parts/page.tsx'
import { SendingForm } from '../parts/sending-form.tsx'
import { navigate, path, toHref } from '../router.ts'
import { logIn } from '../session.ts'

type Way = 'token' | 'password'

export function LoginPage(_: { rest: string }) {
  const [way, setWay] = useState<Way>('token')
  const enter = async (fields: FormData): Promise<void> => {
    const text = (name: string): string => String(fields.get(name) ?? '')
    await logIn(way === 'token' ? { token: text('token') } : { username: text('username'), password: text('password') })
    if (path.value === 'login') navigate(toHref(''), true)
  }
  return (
    <Page title="Log in" question="Log in to use the console.">
      <SendingForm class="login" action="Log in" onSend={enter} toWords={toText}>
        <fieldset>
          <legend>With</legend>
          <label>
            <input type="radio" name="way" checked={way === 'token'} onChange={() => setWay('token')} /> the admin token
          </label>
          <label>
            <input type="radio" name="way" checked={way === 'password'} onChange={() => setWay('password')} /> name and
            password
          </label>
        </fieldset>
        {way === 'token' ? (
          <label>
            Admin token
            <input name="token" type="password" autocomplete="off" required key="token" />
          </label>
        ) : (
          <>
            <label>
              Name
              <input name="username" autocomplete="username" required key="username" />
            </label>
            <label>
              Password
              <input name="password" type="password" autocomplete="current-password" required key="password" />
            </label>
          </>
        )}
      </SendingForm>
    </Page>
  )
}

function toText({ status, message }: ApiError): string {
  if (status === 401) return 'Wrong token. It must equal FN_ADMIN_TOKEN.'
  if (status === 429) return 'Too many failed logins. Try again in five minutes.'
  if (status === 404) return `${message}: no credentials are configured. Set FN_ADMIN_TOKEN or a password hash.`
  return message
}
