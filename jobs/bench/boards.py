"""Emulated boards without a floating-point unit: compile an integer header for a board, run it, and count instructions
or cycles.

    Cortex-M3   arm-none-eabi-gcc and qemu-system-arm (mps2-an385); instructions, counted by a clock that QEMU moves by
                32 ns for each of them
    AVR         avr-gcc, avr-libc and simavr (ATmega1284P); cycles of 16 MHz, counted by a timer

On Debian: gcc-arm-none-eabi qemu-system-arm gcc-avr avr-libc simavr.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["BOARDS", "Board", "Counted"]

_ROWS = """
#include "model.h"
static const mllkm_input rows[] MLLKM_TABLE = {@ROWS@};
"""

_MAIN = """
static void show(int32_t number)
{
    uint32_t rest = number < 0 ? 0 - (uint32_t)number : (uint32_t)number;
    char text[13];
    int8_t i = 12;
    text[i] = 0;
    do {
        text[--i] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (number < 0)
        text[--i] = '-';
    put(text + i);
    put("\\n");
}

static void run(void)
{
    static mllkm_input x[MLLKM_N_FEATURES];
    static int32_t scores[MLLKM_N_SCORES];
    uint16_t i, j, k;
    for (i = 0; i < @N@; i++) {
        uint32_t counted;
        for (j = 0; j < MLLKM_N_FEATURES; j++)
            x[j] = (mllkm_input)READ(rows + (uint32_t)i * MLLKM_N_FEATURES + j);
        start();
        mllkm_scores(x, scores);
        counted = stop();
        show((int32_t)counted);
        show(mllkm_predict(x));
        for (k = 0; k < MLLKM_N_SCORES; k++)
            show(scores[k]);
    }
}
"""

_CORTEX = """
#define READ(p) (*(p))
static volatile uint32_t *const systick = (volatile uint32_t *)0xe000e010;
static uint32_t began;
static void start(void) { began = systick[2]; }
/* A tick of 25 MHz is 40 ns. */
static uint32_t stop(void) { return ((began - systick[2]) & 0xffffffUL) * 40 / 32; }
static void semihosting(int number, const void *argument)
{
    register int operation __asm__("r0") = number;
    register const void *about __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(operation) : "r"(about) : "memory");
}
static void put(const char *text) { semihosting(4, text); }
@MAIN@
extern uint32_t top;
void reset(void);
void reset(void)
{
    systick[1] = 0xffffff;
    systick[2] = 0;
    systick[0] = 5;
    run();
    semihosting(0x18, (const void *)0x20026);
    for (;;)
        ;
}
__attribute__((section(".vectors"), used)) static const void *const vectors[] = {&top, (const void *)reset};
"""

_LAYOUT = """
MEMORY { FLASH (rx): ORIGIN = 0, LENGTH = 4M  RAM (rwx): ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS
{
    .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) } > FLASH
    .bss (NOLOAD) : { *(.data*) *(.bss*) *(COMMON) } > RAM
    top = 0x20100000;
}
"""

_AVR = """
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#define READ(p) (sizeof(mllkm_input) == 1 ? pgm_read_byte(p) : pgm_read_word(p))
static void start(void) { TCCR1B = 0; TCNT1 = 0; TCCR1B = (1 << CS12) | (1 << CS10); }
static uint32_t stop(void) { return 1024UL * TCNT1; }
static void put(const char *text)
{
    for (; *text; text++) {
        while (!(UCSR0A & (1 << UDRE0)))
            ;
        UDR0 = (uint8_t)*text;
    }
}
@MAIN@
int main(void)
{
    UCSR0B = 1 << TXEN0;
    run();
    cli();
    sleep_enable();
    sleep_cpu();
    return 0;
}
"""


@dataclass(frozen=True)
class Counted:
    """The output of a board for each row: scores (rows, K), codes, and counts."""

    scores: np.ndarray
    codes: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Board:
    """A compiler and an emulator; `unit` is what is counted."""

    name: str
    unit: str
    source: str
    compiler: tuple[str, ...]
    emulator: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """Programs that are not installed."""
        return [tool for tool in (self.compiler[0], self.emulator[0]) if shutil.which(tool) is None]

    def run(self, header: Path, U: np.ndarray, timeout_s: float = 120.0) -> Counted:
        """Compile a header with the prefix mllkm beside itself, and run it on rows of integers."""
        folder = header.parent
        numbers = ", ".join(map(str, U.ravel().tolist()))
        text = _ROWS.replace("@ROWS@", numbers).replace("model.h", header.name)
        text += self.source.replace("@MAIN@", _MAIN.replace("@N@", str(len(U))))
        (folder / "firmware.c").write_text(text)
        (folder / "firmware.ld").write_text(_LAYOUT)
        subprocess.run([*self.compiler, "-o", "firmware.elf", "firmware.c", "-lgcc"], cwd=folder, check=True)
        said = subprocess.run(
            [*self.emulator, "firmware.elf"], cwd=folder, check=True, timeout=timeout_s, capture_output=True, text=True
        )
        plain = re.sub(r"\x1b\[\d+m", "", said.stdout + said.stderr)  # simavr colours the output of a board
        numbers = re.findall(r"^(-?\d+)\.?$", plain, re.MULTILINE)  # simavr shows the end of a line as a dot
        found = np.array(numbers, dtype=np.int64).reshape(len(U), -1)
        return Counted(found[:, 2:], found[:, 1], found[:, 0])

    def flash_bytes(self, folder: Path) -> int:
        """Code and constants of the last firmware, with its rows."""
        sizes = self.compiler[0].replace("gcc", "size")
        said = subprocess.run([sizes, "firmware.elf"], cwd=folder, check=True, capture_output=True, text=True).stdout
        text, data = said.splitlines()[1].split()[:2]
        return int(text) + int(data)


CORTEX_M3 = Board(
    "Cortex-M3",
    "instructions",
    _CORTEX,
    (
        *("arm-none-eabi-gcc", "-std=c99", "-mcpu=cortex-m3", "-mthumb", "-O2", "-ffreestanding", "-fno-builtin"),
        *("-nostdlib", "-T", "firmware.ld"),
    ),
    (
        *("qemu-system-arm", "-M", "mps2-an385", "-nographic", "-monitor", "none", "-serial", "none"),
        *("-semihosting-config", "enable=on,target=native", "-icount", "shift=5", "-kernel"),
    ),
)
AVR = Board(
    "AVR",
    "cycles",
    _AVR,
    ("avr-gcc", "-std=c99", "-mmcu=atmega1284p", "-DF_CPU=16000000UL", "-O2"),
    ("simavr", "-m", "atmega1284p", "-f", "16000000"),
)
BOARDS = (CORTEX_M3, AVR)
