/** A table of any length: only the rows that are seen are made. `j` and `k` go through it, Enter opens. Owner: page console/console. */

import type { ComponentChildren, RefObject } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { navigate } from '../router.ts'

export interface Column<Row> {
  readonly name: string
  readonly title: string
  readonly cell: (row: Row) => ComponentChildren
  /** Sorts by it when the head is pressed; null comes last. Absent: not sorted by. */
  readonly value?: (row: Row) => number | string | null
  /** Numbers stand to the right. */
  readonly isNumber?: boolean
  /** CSS width; of a long column its least width. */
  readonly width?: string
  /** Of long texts: the column gets the room that the others leave, a cell ends in an ellipsis and has this as its tooltip. */
  readonly long?: (row: Row) => string
  /** Left out when the table does not fit into its box: those with 1 first, of equals the last one. Absent: always shown. */
  readonly drop?: 1 | 2
}

function toClass<Row>({ isNumber, long }: Column<Row>): string | undefined {
  const names = [isNumber === true && 'number', long !== undefined && 'long']
  return names.filter(name => name !== false).join(' ') || undefined
}

interface TableProps<Row> {
  /** Said to who cannot see it. */
  label: string
  columns: readonly Column<Row>[]
  rows: readonly Row[]
  keyOf: (row: Row) => string
  /** Where Enter and a click on the row lead; null nowhere. */
  hrefOf?: (row: Row) => string | null
  /** Instead of `hrefOf`: what Enter and a click do. */
  onOpen?: (row: Row) => void
  /** Name of the column that sorts at first, with `-` before it downwards. */
  sort?: string
  onSort?: (sort: string) => void
  /** Marks a row: 'failing', 'degraded'. */
  stateOf?: (row: Row) => string | null
  /** Shown instead of an empty table. */
  empty?: ComponentChildren
}

/** Pixels; style.css says the same. */
const ROW_HEIGHT = 36
/** Rows made above and below those that are seen. */
const MARGIN_ROWS = 10
/** Up to this many rows are all rendered. */
const SIMPLE_ROWS = 100

export function Table<Row>(props: TableProps<Row>) {
  const { label, keyOf, hrefOf, onOpen, stateOf, empty } = props
  const box = useRef<HTMLDivElement>(null)
  const [top, setTop] = useState(0)
  const [size, setSize] = useState({ width: 0, height: 800 })
  const [ownSort, setOwnSort] = useState(props.sort ?? '')
  const [chosen, setChosen] = useState(-1)
  const sort = props.onSort === undefined ? ownSort : (props.sort ?? '')
  const rows = sortRows(props.rows, props.columns, sort)
  const columns = useFitting(box, props.columns)
  const isVirtual = rows.length > SIMPLE_ROWS
  const open = (row: Row): void => {
    const href = hrefOf?.(row) ?? null
    if (onOpen !== undefined) onOpen(row)
    else if (href !== null) navigate(href)
  }
  useEffect(() => {
    const element = box.current
    if (element === null) return
    const observer = new ResizeObserver(() => setSize({ width: element.offsetWidth, height: element.clientHeight }))
    observer.observe(element)
    return () => observer.disconnect()
  }, [rows.length === 0])
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      const { target } = event
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !takesKeys(box.current)) return
      if (target instanceof HTMLElement && target.closest('input, textarea, select, dialog, button, a') !== null) return
      const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key] ?? 0
      if (step !== 0 && rows.length > 0) {
        event.preventDefault()
        const next = Math.max(0, Math.min(rows.length - 1, chosen + step))
        setChosen(next)
        showRow(box.current, next)
      } else if (event.key === 'Enter' && rows[chosen] !== undefined) {
        event.preventDefault()
        open(rows[chosen])
      }
    }
    document.addEventListener('keydown', onKey)
    return () => document.removeEventListener('keydown', onKey)
  })
  if (rows.length === 0 && empty !== undefined) return <>{empty}</>
  const first = isVirtual ? Math.max(0, Math.floor(top / ROW_HEIGHT) - MARGIN_ROWS) : 0
  const last = isVirtual
    ? Math.min(rows.length, Math.ceil((top + size.height) / ROW_HEIGHT) + MARGIN_ROWS)
    : rows.length
  const press = (name: string): void => {
    const next = sort === name ? `-${name}` : name
    if (props.onSort === undefined) setOwnSort(next)
    else props.onSort(next)
  }
  return (
    // A box that scrolls has to be reached by keys.
    <section
      class="table"
      ref={box}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: see above
      tabIndex={0}
      aria-label={label}
      onScroll={event => setTop(event.currentTarget.scrollTop)}
    >
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map(column => (
              <Head column={column} sort={sort} onPress={press} key={column.name} />
            ))}
          </tr>
        </thead>
        <tbody>
          <Space rows={first} columns={columns.length} />
          {rows.slice(first, last).map((row, offset) => {
            const index = first + offset
            return (
              // The link in the row does the same for keys.
              <tr
                key={keyOf(row)}
                aria-rowindex={index + 2}
                class={index === chosen ? 'chosen' : undefined}
                data-state={stateOf?.(row) ?? undefined}
                data-opens={hrefOf !== undefined || onOpen !== undefined ? '' : undefined}
                onClick={event => {
                  if ((event.target as Element).closest('a, button, input, label') === null) open(row)
                }}
              >
                {columns.map(column => (
                  <td key={column.name} class={toClass(column)} title={column.long?.(row) || undefined}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            )
          })}
          <Space rows={rows.length - last} columns={columns.length} />
        </tbody>
      </table>
    </section>
  )
}

/** The columns that fit into the box. Measured, because only the browser knows how wide the texts are. */
function useFitting<Row>(
  box: RefObject<HTMLDivElement | null>,
  columns: readonly Column<Row>[],
): readonly Column<Row>[] {
  // One that was dropped comes back in a wider box only: with each row that comes or goes it would jump.
  const [fit, setFit] = useState({ width: 0, dropped: 0 })
  const order = toDropOrder(columns)
  useLayoutEffect(() => {
    const element = box.current
    if (element === null) return
    const { offsetWidth: width, scrollWidth, clientWidth } = element
    if (width !== fit.width) setFit({ width, dropped: 0 })
    else if (scrollWidth > clientWidth && fit.dropped < order.length) setFit({ width, dropped: fit.dropped + 1 })
  })
  const dropped = new Set(order.slice(0, fit.dropped))
  return columns.filter(column => !dropped.has(column))
}

function toDropOrder<Row>(columns: readonly Column<Row>[]): readonly Column<Row>[] {
  return [1, 2].flatMap(drop => columns.filter(column => column.drop === drop).reverse())
}

interface HeadProps<Row> {
  column: Column<Row>
  sort: string
  onPress: (name: string) => void
}

function Head<Row>({ column, sort, onPress }: HeadProps<Row>) {
  const { name, title, value, width, long } = column
  const style = long === undefined ? { width } : { minWidth: width }
  const direction = sort === name ? 'ascending' : sort === `-${name}` ? 'descending' : undefined
  return (
    <th scope="col" class={toClass(column)} style={width === undefined ? undefined : style} aria-sort={direction}>
      {value === undefined ? (
        title
      ) : (
        <button type="button" onClick={() => onPress(name)}>
          {title}
          <span aria-hidden="true">{direction === 'ascending' ? ' ↑' : direction === 'descending' ? ' ↓' : ''}</span>
        </button>
      )}
    </th>
  )
}

/** Stands for rows that are not made. */
function Space({ rows, columns }: { rows: number; columns: number }) {
  if (rows === 0) return null
  return (
    <tr class="space" style={{ height: `${rows * ROW_HEIGHT}px` }}>
      <td colSpan={columns} />
    </tr>
  )
}

/** Of several tables the one that has the focus is meant, or else the first. */
function takesKeys(box: HTMLElement | null): boolean {
  if (box === null) return false
  const focused = document.activeElement?.closest('.table') ?? null
  return box === (focused ?? document.querySelector('main .table'))
}

function showRow(box: HTMLElement | null, index: number): void {
  if (box === null) return
  const head = ROW_HEIGHT
  const at = index * ROW_HEIGHT
  if (at < box.scrollTop) box.scrollTop = at
  else if (at + ROW_HEIGHT + head > box.scrollTop + box.clientHeight)
    box.scrollTop = at + ROW_HEIGHT + head - box.clientHeight
}

function sortRows<Row>(rows: readonly Row[], columns: readonly Column<Row>[], sort: string): readonly Row[] {
  const isDown = sort.startsWith('-')
  const value = columns.find(({ name }) => name === (isDown ? sort.slice(1) : sort))?.value
  if (value === undefined) return rows
  const factor = isDown ? -1 : 1
  return rows
    .map(row => ({ row, key: value(row) }))
    .sort((a, b) => {
      if (a.key === null || b.key === null) return a.key === b.key ? 0 : a.key === null ? 1 : -1
      return (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) * factor
    })
    .map(({ row }) => row)
}
