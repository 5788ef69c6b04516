<?php
/** What a worker writes to its descriptors 1 and 2, on its way to the gateway: bounded, and always read. Page: runtime/daemon. */

declare(strict_types=1);

namespace Fngw;

/** Output of one descriptor of a worker, passed on within a budget. */
final class OutputPipe
{
    /** Bytes of one stream that are passed on per second; the rest is dropped with a note. */
    private const PASSED_PER_SECOND = 256 * 1024;
    /** Bytes that are read per second: a flood slows its writer, not the daemon. */
    private const READ_PER_SECOND = 16 * 1024 * 1024;
    public const WINDOW_NS = 100_000_000;
    private const PASSED_PER_WINDOW = self::PASSED_PER_SECOND / 10;
    private const READ_PER_WINDOW = self::READ_PER_SECOND / 10;

    /** @var resource */
    public $pipe;
    /** Monotonic ns at which the current window ends; 0 when nothing was read in it. */
    public int $windowEnd = 0;
    private int $windowBytes = 0;
    private int $dropped = 0;
    private string $partial = '';

    public function __construct(int $descriptor, System $system)
    {
        $pipe = \fopen("php://fd/$descriptor", 'r');
        $system->close($descriptor);
        if ($pipe === false) {
            throw new \RuntimeException('cannot open an output pipe: too many open files?');
        }
        \stream_set_blocking($pipe, false);
        \stream_set_read_buffer($pipe, 0);
        $this->pipe = $pipe;
    }

    public function isPaused(): bool
    {
        return $this->windowBytes >= self::READ_PER_WINDOW;
    }

    /** @return string|null text to pass on, may be ''; null when the stream has ended */
    public function read(int $now): ?string
    {
        $bytes = \fread($this->pipe, READ_BYTES);
        if ($bytes === '' || $bytes === false) {
            return \feof($this->pipe) ? null : '';
        }
        if ($this->windowEnd === 0) {
            $this->windowEnd = $now + self::WINDOW_NS;
        }
        $this->windowBytes += \strlen($bytes);
        if ($this->windowBytes > self::PASSED_PER_WINDOW) {
            $this->dropped += \strlen($bytes);
            return '';
        }
        return $this->toText($bytes);
    }

    /** Ends the window. @return string a note of what was dropped in it, or '' */
    public function renew(): string
    {
        $note = $this->dropped > 0 ? "[{$this->dropped} bytes of output dropped]\n" : '';
        $this->windowEnd = 0;
        $this->windowBytes = 0;
        $this->dropped = 0;
        return $note;
    }

    /** What is left when the worker has ended. */
    public function drain(): string
    {
        $text = '';
        for ($reads = 0; $reads < 4; $reads++) {
            $more = $this->read(0);
            if ($more === null || $more === '') {
                break;
            }
            $text .= $more;
        }
        $text .= toUtf8($this->partial);
        $this->partial = '';
        return $text . $this->renew();
    }

    /** Holds back a character that is cut by the end of a read. */
    private function toText(string $bytes): string
    {
        $bytes = $this->partial . $bytes;
        $this->partial = '';
        if (\preg_match('/(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})$/D', $bytes, $cut) === 1) {
            $this->partial = $cut[0];
            $bytes = \substr($bytes, 0, -\strlen($cut[0]));
        }
        return toUtf8($bytes);
    }
}
