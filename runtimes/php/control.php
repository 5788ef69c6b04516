<?php
/** A control connection of a daemon, which must never block it. Page: runtime/wire-protocol (5 to 9). */

declare(strict_types=1);

namespace Fngw;

/** One gateway's control connection. */
final class Control
{
    /** Output waiting to be sent above which further output is dropped, bytes. */
    private const MAX_WAITING_OUTPUT_BYTES = 1024 * 1024;

    /** @var resource */
    public $socket;
    public FrameReader $reader;
    public bool $greeted = false;
    /** Bytes the socket did not take yet. */
    public string $unsent = '';
    /** True when the connection is to be closed once `unsent` is out. */
    public bool $closing = false;
    private int $dropped = 0;

    /** @param resource $socket */
    public function __construct($socket)
    {
        \stream_set_blocking($socket, false);
        $this->socket = $socket;
        $this->reader = new FrameReader();
    }

    public function send(string $frame): void
    {
        $this->unsent .= $frame;
        $this->flush();
    }

    public function sendLog(string $worker, string $stream, string $text): void
    {
        if ($text === '') {
            return;
        }
        if (\strlen($this->unsent) > self::MAX_WAITING_OUTPUT_BYTES) {
            $this->dropped += \strlen($text);
            return;
        }
        $note = $this->dropped > 0 ? "[{$this->dropped} bytes of output dropped]\n" : '';
        $this->dropped = 0;
        $this->send(encodeFields(Kind::LOG, 0, ['worker' => $worker, 'stream' => $stream], $note . $text));
    }

    public function flush(): void
    {
        if ($this->unsent === '') {
            return;
        }
        $sent = @\stream_socket_sendto($this->socket, $this->unsent);
        if ($sent > 0) {
            $this->unsent = (string) \substr($this->unsent, $sent);
        }
    }
}
