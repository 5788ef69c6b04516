/** The frame around every page: menu, connection bar, the page itself. Owner: page console/console. */

import type { ComponentType } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { isLoginWanted } from './data/api.ts'
import { PAGES } from './pages.ts'
import { FleetPage } from './pages/fleet.tsx'
import { FunctionPage } from './pages/function.tsx'
import { FunctionsPage } from './pages/functions.tsx'
import { HealthPage } from './pages/health.tsx'
import { JobsPage } from './pages/jobs.tsx'
import { LoginPage } from './pages/login.tsx'
import { LogsPage } from './pages/logs.tsx'
import { OverviewPage } from './pages/overview.tsx'
import { PacksPage } from './pages/packs.tsx'
import { RequestPage } from './pages/request.tsx'
import { RoutesPage } from './pages/routes.tsx'
import { SchedulerPage } from './pages/scheduler.tsx'
import { SettingsPage } from './pages/settings.tsx'
import { TryPage } from './pages/try.tsx'
import { ConnectionBar } from './parts/connection-bar.tsx'
import { Empty } from './parts/empty.tsx'
import { Help } from './parts/help.tsx'
import { Menu } from './parts/menu.tsx'
import { Palette } from './parts/palette.tsx'
import { path } from './router.ts'
import { refusal, uiState } from './session.ts'

/** A page; `rest` is what follows its name in the path. */
type PageComponent = ComponentType<{ rest: string }>

const COMPONENTS: Readonly<Record<string, PageComponent>> = {
  '': OverviewPage,
  functions: FunctionsPage,
  routes: RoutesPage,
  try: TryPage,
  logs: LogsPage,
  jobs: JobsPage,
  scheduler: SchedulerPage,
  packs: PacksPage,
  health: HealthPage,
  fleet: FleetPage,
  settings: SettingsPage,
  login: LoginPage,
}

/** Pages of one thing: its name follows. */
const BELOW: Readonly<Record<string, PageComponent>> = { functions: FunctionPage, requests: RequestPage }

export function App() {
  const { name, rest, Page } = toPage(path.value)
  const main = useRef<HTMLElement>(null)
  const title = PAGES.find(page => page.path === name)?.title ?? 'Console'
  const isFirst = useRef(true)
  useEffect(() => {
    document.title = `${rest === '' ? title : rest} – fngw`
    // Readers of the screen begin at the new page, as after a load.
    if (!isFirst.current) main.current?.focus()
    isFirst.current = false
  }, [title, rest])
  return (
    <>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <Menu current={name} />
      <div class="body">
        <ConnectionBar />
        <main id="main" tabIndex={-1} ref={main}>
          <Gate name={name}>{Page === null ? <NoPage /> : <Page rest={rest} key={`${name}/${rest}`} />}</Gate>
        </main>
      </div>
      <Palette />
      <Help />
    </>
  )
}

function toPage(address: string): { name: string; rest: string; Page: PageComponent | null } {
  const slash = address.indexOf('/')
  const name = slash === -1 ? address : address.slice(0, slash)
  const rest = slash === -1 ? '' : address.slice(slash + 1)
  const pages: Readonly<Record<string, PageComponent>> = rest === '' ? COMPONENTS : BELOW
  return { name, rest, Page: (Object.hasOwn(pages, name) ? pages[name] : null) ?? null }
}

/** Shows the login where one is asked for, and in words why there is nothing to show. */
function Gate({ name, children }: { name: string; children: preact.ComponentChildren }) {
  if (name === 'login') return <>{children}</>
  if (isLoginWanted.value) return <LoginPage rest="" />
  const error = refusal.value
  if (error !== null) {
    return (
      <Empty title="The console is not available">
        <p>{error.message}</p>
        <p>{toHint(error.message, error.status)}</p>
      </Empty>
    )
  }
  // biome-ignore lint/complexity/noUselessFragments: children may be many
  return uiState.value === null ? null : <>{children}</>
}

function toHint(message: string, status: number): string {
  if (status === 0) return 'Start the gateway. This page reconnects automatically.'
  if (message === 'console api disabled')
    return 'The gateway runs with FN_CONSOLE_API_ENABLED=0, which disables the console as well.'
  if (message === 'console api local-only')
    return 'The console accepts local connections only. Open it on localhost, through a tunnel, or set FN_CONSOLE_LOCAL_ONLY=0 and require a login.'
  return `The gateway returned ${status}.`
}

function NoPage() {
  return (
    <Empty title="Page not found">
      <p>Use the menu, or press Ctrl+K to find a page or a function.</p>
    </Empty>
  )
}
