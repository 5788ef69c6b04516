/** The address of the page as signals, and links that change it without reloading the page. Owner: page console/console. */

import { computed, signal } from '@preact/signals'

/** Address of the gateway, with a slash at its end; the console is `console` below it. */
export const gatewayUrl: URL = toGatewayUrl()
const consolePath = `${gatewayUrl.pathname}console`

function toGatewayUrl(): URL {
  if (typeof document === 'undefined') return new URL('http://localhost/')
  const meta = document.querySelector<HTMLMetaElement>('meta[name="gateway"]')
  return new URL(meta?.content ?? '/', document.baseURI)
}

const href = signal(typeof location === 'undefined' ? 'http://localhost/console' : location.href)

/** Path below the console: '' for the overview, else such as `functions/node/hello@default`, decoded. */
export const path = computed(() => toPath(new URL(href.value)))
export const query = computed(() => new URL(href.value).searchParams)

function toPath(url: URL): string {
  const below = url.pathname.startsWith(consolePath) ? url.pathname.slice(consolePath.length) : ''
  try {
    return decodeURIComponent(below).replace(/^\/+|\/+$/g, '')
  } catch {
    return below.replace(/^\/+|\/+$/g, '')
  }
}

/**
 * Address of a page of the console.
 * @param page - path below `/console`, unescaped
 * @param fields - query; null and '' are left out
 */
export function toHref(page: string, fields: Readonly<Record<string, string | null>> = {}): string {
  const escaped = page
    .split('/')
    .map(part => encodeURIComponent(part).replaceAll('%40', '@'))
    .join('/')
  const search = new URLSearchParams(Object.entries(fields).filter((field): field is [string, string] => !!field[1]))
  const text = search.toString()
  return `${consolePath}${escaped === '' ? '' : `/${escaped}`}${text === '' ? '' : `?${text}`}`
}

/** @param replace - the address of before is not kept for the back button */
export function navigate(to: string, replace = false): void {
  if (replace) history.replaceState(null, '', to)
  else history.pushState(null, '', to)
  const isOtherPage = new URL(href.value).pathname !== location.pathname
  href.value = location.href
  if (isOtherPage && !replace) window.scrollTo(0, 0)
}

/** Changes fields of the query; null takes one out. The back button does not stop at each of them. */
export function setQuery(fields: Readonly<Record<string, string | null>>): void {
  const url = new URL(href.value)
  for (const [name, value] of Object.entries(fields)) {
    if (value === null || value === '') url.searchParams.delete(name)
    else url.searchParams.set(name, value)
  }
  navigate(url.pathname + url.search, true)
}

/** Follows the back button and clicks on links to other pages of the console. */
export function startRouter(): void {
  window.addEventListener('popstate', () => {
    href.value = location.href
  })
  document.addEventListener('click', event => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return
    const link = (event.target as Element).closest('a')
    if (link === null || link.target !== '' || link.hasAttribute('download') || link.origin !== location.origin) return
    if (link.pathname !== consolePath && !link.pathname.startsWith(`${consolePath}/`)) return
    event.preventDefault()
    navigate(link.href)
  })
}
