/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * option.c: fi_getopt and fi_setopt of an endpoint, and the default flags of its operations. An endpoint and its
 * aliases share the options; flags belong to the fid.
 *
 * Any state, any thread: the option that data calls read (multi_min, see shmcma_now()) is one word; the sizes never
 * change. No other process sees any of this.
 */
#include "ep/endpoint.h"

#include <string.h>
#include "op/post.h"

static int put_option(void *optval, size_t *optlen, const void *value, size_t size)
{
	size_t room = *optlen;

	*optlen = size;
	if (room < size)
		return -FI_ETOOSMALL;
	if (!optval)
		return -FI_EINVAL;
	memcpy(optval, value, size);
	return 0;
}

/* The largest operations of each kind, from SHMCMA_OPT_MAX_MSG_SIZE on. */
static const size_t sizes[SHMCMA_OPT_SIZES] = { SC_MESSAGE_MAX,	    SC_MESSAGE_MAX,	SC_MESSAGE_MAX,
						SC_ATOMIC_MAX,	    SHMCMA_INJECT_SIZE, SHMCMA_INJECT_SIZE,
						SHMCMA_INJECT_SIZE, SC_ATOMIC_MAX };

static bool is_size(int optname)
{
	return optname >= SHMCMA_OPT_MAX_MSG_SIZE && optname < SHMCMA_OPT_MAX_MSG_SIZE + SHMCMA_OPT_SIZES;
}

static int get_size(const struct shmcma_ep *ep, int optname, void *optval, size_t *optlen)
{
	int at = optname - SHMCMA_OPT_MAX_MSG_SIZE;
	size_t size = shmcma_now(ep->sizes[at]);

	return put_option(optval, optlen, size ? &size : &sizes[at], sizeof(size));
}

/* The application says that it needs no larger ones, which stay possible. */
static int set_size(struct shmcma_ep *ep, int optname, const void *optval, size_t optlen)
{
	int at = optname - SHMCMA_OPT_MAX_MSG_SIZE;
	size_t size;

	if (optlen != sizeof(size) || !optval)
		return -FI_EINVAL;
	memcpy(&size, optval, sizeof(size));
	if (size > sizes[at])
		return -FI_EINVAL;
	shmcma_set(ep->sizes[at], size);
	return 0;
}

/* The other options of libfabric 1.17 belong to connections, buffered receives and sockets. */
int shmcma_ep_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen)
{
	static const int p2p = FI_HMEM_P2P_DISABLED;
	const struct shmcma_ep *ep = container_of(fid, struct shmcma_ep_fid, fid.fid)->ep;
	size_t multi_min;

	if (level != FI_OPT_ENDPOINT)
		return -FI_ENOPROTOOPT;
	if (!optlen)
		return -FI_EINVAL;
	switch (optname) {
	case FI_OPT_MIN_MULTI_RECV:
		multi_min = shmcma_now(ep->multi_min);
		return put_option(optval, optlen, &multi_min, sizeof(multi_min));
	case FI_OPT_TX_SIZE:
		return put_option(optval, optlen, &ep->tx_size, sizeof(ep->tx_size));
	case FI_OPT_RX_SIZE:
		return put_option(optval, optlen, &ep->rx_size, sizeof(ep->rx_size));
	case FI_OPT_FI_HMEM_P2P:
		return put_option(optval, optlen, &p2p, sizeof(p2p));
	case FI_OPT_XPU_TRIGGER: /* the option is known, and the answer is no: no device can trigger */
		return -FI_EOPNOTSUPP;
	default:
		return is_size(optname) ? get_size(ep, optname, optval, optlen) : -FI_ENOPROTOOPT;
	}
}

/* There is no device memory, so only the mode "do not use it" is possible. */
static int set_p2p(const void *optval, size_t optlen)
{
	int mode;

	if (optlen != sizeof(mode) || !optval)
		return -FI_EINVAL;
	memcpy(&mode, optval, sizeof(mode));
	if (mode == FI_HMEM_P2P_DISABLED)
		return 0;
	return mode < FI_HMEM_P2P_ENABLED || mode > FI_HMEM_P2P_DISABLED ? -FI_EINVAL : -FI_EOPNOTSUPP;
}

/* fi_endpoint(3) knows both flags for fi_setopt() alone. */
static int set_permitted(int optname, const void *optval, size_t optlen)
{
	bool permitted;

	if (optlen != sizeof(permitted) || !optval)
		return -FI_EINVAL;
	if (optname == SHMCMA_OPT_CUDA_API_PERMITTED)
		return -FI_EINVAL; /* the answer of an endpoint without CUDA */
	memcpy(&permitted, optval, sizeof(permitted));
	return permitted ? 0 : -FI_EOPNOTSUPP; /* there is no other way to a peer */
}

int shmcma_ep_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen)
{
	struct shmcma_ep *ep = container_of(fid, struct shmcma_ep_fid, fid.fid)->ep;
	size_t multi_min;

	if (level != FI_OPT_ENDPOINT)
		return -FI_ENOPROTOOPT;
	switch (optname) {
	case FI_OPT_MIN_MULTI_RECV:
		if (optlen != sizeof(multi_min) || !optval)
			return -FI_EINVAL;
		memcpy(&multi_min, optval, sizeof(multi_min));
		shmcma_set(ep->multi_min, multi_min);
		return 0;
	case FI_OPT_FI_HMEM_P2P:
		return set_p2p(optval, optlen);
	case SHMCMA_OPT_CUDA_API_PERMITTED:
	case SHMCMA_OPT_SHARED_MEMORY_PERMITTED:
		return set_permitted(optname, optval, optlen);
	default:
		return is_size(optname) ? set_size(ep, optname, optval, optlen) : -FI_ENOPROTOOPT;
	}
}

/* ---- flags of operations ---------------------------------------------------------------------- */

static uint32_t exact_flag(const struct shmcma_ep *ep, uint32_t cq_flags)
{
	return shmcma_is_exact(ep, cq_flags) ? SHMCMA_EXACT : 0;
}

static void set_recv_flags(struct shmcma_ep *ep, struct shmcma_ep_fid *fid)
{
	uint64_t flags = shmcma_now(fid->rx_op_flags);
	bool selective = shmcma_now(ep->rx_selective);

	shmcma_set(fid->recv_flags, shmcma_recv_flags(flags, selective) | exact_flag(ep, FI_MSG));
	if (!(ep->caps & SHMCMA_TAGGED_MULTI_RECV))
		flags &= ~FI_MULTI_RECV;
	shmcma_set(fid->trecv_flags, shmcma_recv_flags(flags, selective) | exact_flag(ep, FI_TAGGED));
}

void shmcma_ep_set_flags(struct shmcma_ep *ep)
{
	for (struct shmcma_ep_fid *fid = ep->fids; fid; fid = fid->next) {
		shmcma_set(fid->send_flags,
			   shmcma_send_flags(shmcma_now(fid->tx_op_flags), ep->tx_selective));
		set_recv_flags(ep, fid);
	}
}

int shmcma_ep_put_op_flags(struct shmcma_ep_fid *fid, uint64_t flags)
{
	uint64_t way = flags & (FI_TRANSMIT | FI_RECV);

	flags &= ~way;
	if (way != FI_TRANSMIT && way != FI_RECV)
		return -FI_EINVAL;
	if (flags & ~(way == FI_TRANSMIT ? SHMCMA_TX_OP_FLAGS : SHMCMA_RX_OP_FLAGS))
		return -FI_EBADFLAGS;
	if (way == FI_TRANSMIT)
		shmcma_set(fid->tx_op_flags, flags);
	else
		shmcma_set(fid->rx_op_flags, flags);
	return 0;
}

int shmcma_ep_set_op_flags(struct shmcma_ep_fid *fid, const uint64_t *flags)
{
	int ret = shmcma_ep_put_op_flags(fid, *flags);

	if (!ret)
		shmcma_ep_set_flags(fid->ep);
	return ret;
}

int shmcma_ep_get_op_flags(const struct shmcma_ep_fid *fid, uint64_t *flags)
{
	switch (*flags & (FI_TRANSMIT | FI_RECV)) {
	case FI_TRANSMIT:
		*flags = shmcma_now(fid->tx_op_flags);
		return 0;
	case FI_RECV:
		*flags = shmcma_now(fid->rx_op_flags);
		return 0;
	default:
		return -FI_EINVAL;
	}
}
