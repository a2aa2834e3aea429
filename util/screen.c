/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * screen.c: see screen.h. The signals are blocked and read from a descriptor, so no handler runs between two sequences.
 * A signal that stops the process gives the terminal back first; SIGKILL and SIGSTOP alone cannot be caught.
 *
 * NOFLSH: at ^C the kernel first sends the signal, then drops the output that the terminal has not taken yet. Without
 * this flag it may drop the sequence by which the command leaves the other screen.
 */
#define _GNU_SOURCE 1
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

/* The other screen without a cursor; and back. */
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"
#define HOME "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"

static bool used, is_set, has_keys; /* is_set: the input is a terminal */
static struct termios former;
static sigset_t former_mask;
static int signals = -1, ended_by;
static unsigned int rows, columns, drawn;

static void enter(void)
{
	struct termios raw = former;

	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_lflag |= NOFLSH;
	if (is_set)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	fputs(ENTER, stdout);
	fflush(stdout);
}

static void leave(void)
{
	fputs(LEAVE, stdout);
	fflush(stdout);
	if (is_set)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &former);
}

void screen_init(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH };
	sigset_t mask;

	if (!isatty(STDOUT_FILENO))
		return;
	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&mask, numbers[i]);
	signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || sigprocmask(SIG_BLOCK, &mask, &former_mask))
		return;
	is_set = has_keys = !tcgetattr(STDIN_FILENO, &former);
	used = true;
	enter();
}

bool screen_is_used(void)
{
	return used;
}

int screen_fini(void)
{
	if (!used)
		return 0;
	leave();
	used = false;
	close(signals);
	sigprocmask(SIG_SETMASK, &former_mask, NULL);
	return ended_by;
}

void screen_begin(void)
{
	struct winsize size;

	rows = columns = 0;
	drawn = 0;
	if (!used)
		return;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size)) {
		rows = size.ws_row;
		columns = size.ws_col;
	}
	fputs(HOME, stdout);
}

void screen_line(const char *text)
{
	if (!used) {
		puts(text);
		return;
	}
	if (rows && drawn == rows)
		return;
	if (drawn++)
		putchar('\n');
	printf("%.*s" CLEAR_LINE, columns ? (int)columns : 80, text);
}

void screen_end(void)
{
	if (used)
		fputs(CLEAR_BELOW, stdout);
	fflush(stdout);
}

static int answer_signal(void)
{
	struct signalfd_siginfo info;

	if (read(signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return SCREEN_NOTHING;
	if (info.ssi_signo == SIGWINCH)
		return SCREEN_REDRAW;
	if (info.ssi_signo == SIGTSTP) {
		leave();
		raise(SIGSTOP);
		enter();
		return SCREEN_REDRAW;
	}
	ended_by = (int)info.ssi_signo;
	return SCREEN_QUIT;
}

/* A terminal that has been closed gives no more keys. */
static int read_key(void)
{
	unsigned char key;
	ssize_t got = read(STDIN_FILENO, &key, 1);

	if (got == 1)
		return key;
	has_keys = got < 0 && errno == EINTR;
	return SCREEN_NOTHING;
}

int screen_wait(double seconds)
{
	struct pollfd fds[2] = { { .fd = used ? signals : -1, .events = POLLIN },
				 { .fd = used && has_keys ? STDIN_FILENO : -1, .events = POLLIN } };

	if (poll(fds, 2, (int)(seconds * 1000) + 1) <= 0)
		return SCREEN_NOTHING;
	if (fds[0].revents)
		return answer_signal();
	return fds[1].revents ? read_key() : SCREEN_NOTHING;
}
