<?php
/** What a handler prints, per call, as `log` frames. Pages: runtime/wire-protocol (17), runtimes/php. */

declare(strict_types=1);

namespace Fngw;

/** Captured output of one call and stream, bytes; what follows is dropped with a note. */
const MAX_CAPTURED_BYTES = 64 * 1024;
/** Prints of a call that are sent at once, so that they are known even when the call is killed. */
const PROMPT_PRINTS = 16;
/** Bytes that later prints gather before they are sent: a flood of small prints must not become a flood of frames. */
const GATHERED_BYTES = 4096;

/**
 * stdout: an output buffer whose callback takes every print. stderr: warnings and notices by the error handler, and
 * `error_log` (see error-log.php). What goes to the descriptors themselves is the daemon's to carry.
 */
final class Capture
{
    private const CUT_NOTE = "\n[output beyond 64 KiB dropped]\n";

    /** The capture of this worker, for `error_log`, which is a plain function. */
    public static ?self $current = null;

    /** @var \Closure(string): void */
    private \Closure $send;
    /** Id of the call that runs; 0 between calls and while loading. */
    private int $id = 0;
    private int $prints = 0;
    /** @var array<string, string> text not yet sent, by stream */
    private array $held = ['stdout' => '', 'stderr' => ''];
    /** @var array<string, int> bytes that may still be captured, by stream */
    private array $room = ['stdout' => MAX_CAPTURED_BYTES, 'stderr' => MAX_CAPTURED_BYTES];
    private bool $used = false;

    /** @param \Closure(string): void $send takes frames */
    public function __construct(\Closure $send)
    {
        $this->send = $send;
    }

    public function install(): void
    {
        self::$current = $this;
        \ini_set('display_errors', '0');
        // The error handler and the worker's shutdown function tell what PHP would log.
        \ini_set('log_errors', '0');
        \set_error_handler([$this, 'handleError']);
        $this->openBuffer();
    }

    public function begin(int $id): void
    {
        $this->id = $id;
    }

    /** Frames of the call's remaining output; what is printed from now on belongs to no call. */
    public function end(): string
    {
        if (\ob_get_level() !== 1) {
            $this->restoreBuffer();
        }
        $frames = '';
        if ($this->used) {
            $frames = $this->takeHeld();
            $this->used = false;
            $this->prints = 0;
            $this->room = ['stdout' => MAX_CAPTURED_BYTES, 'stderr' => MAX_CAPTURED_BYTES];
        }
        $this->id = 0;
        return $frames;
    }

    public function write(string $stream, string $text): void
    {
        $room = $this->room[$stream];
        if ($room < 0 || $text === '') {
            return;
        }
        $this->used = true;
        if (\strlen($text) > $room) {
            $text = \substr($text, 0, $room) . self::CUT_NOTE;
            $this->room[$stream] = -1;
        } else {
            $this->room[$stream] = $room - \strlen($text);
        }
        $this->held[$stream] .= $text;
        if (++$this->prints <= PROMPT_PRINTS || \strlen($this->held[$stream]) >= GATHERED_BYTES) {
            ($this->send)($this->takeHeld());
        }
    }

    /**
     * A warning or notice is a line on stderr and nothing more; an error that would end the script is thrown.
     *
     * @internal called by PHP
     */
    public function handleError(int $type, string $message, string $file, int $line): bool
    {
        // False keeps error_get_last() right, which code that silences a call with @ relies on.
        if ((\error_reporting() & $type) === 0) {
            return false;
        }
        if ($type === \E_USER_ERROR || $type === \E_RECOVERABLE_ERROR) {
            throw new \ErrorException($message, 0, $type, $file, $line);
        }
        $this->write('stderr', 'PHP ' . self::label($type) . ":  $message in $file on line $line\n");
        return false;
    }

    private static function label(int $type): string
    {
        return match ($type) {
            \E_NOTICE, \E_USER_NOTICE => 'Notice',
            \E_DEPRECATED, \E_USER_DEPRECATED => 'Deprecated',
            default => 'Warning',
        };
    }

    private function takeHeld(): string
    {
        $frames = '';
        foreach ($this->held as $stream => $text) {
            if ($text !== '') {
                foreach (logPieces(toUtf8($text)) as $piece) {
                    $frames .= encodeFrame(Kind::LOG, $this->id, "{\"stream\":\"$stream\"}", $piece);
                }
                $this->held[$stream] = '';
            }
        }
        return $frames;
    }

    private function openBuffer(): void
    {
        // With a chunk size of 1 the callback gets every print at once and PHP keeps nothing.
        \ob_start(function (string $text): string {
            $this->write('stdout', $text);
            return '';
        }, 1);
    }

    /** The handler left buffers of its own open, or closed ours. */
    private function restoreBuffer(): void
    {
        while (\ob_get_level() > 1) {
            \ob_end_flush();
        }
        if (\ob_get_level() === 0) {
            $this->openBuffer();
        }
    }
}
