/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * option.c: fi_getopt and fi_setopt of an endpoint, and the default flags of its operations. An endpoint and its
 * aliases share the options; flags belong to the fid.
 *
 * Any state, any thread: the option that data calls read (multi_min, see shmcma_now()) is one word; the sizes never
 * change. No other process sees any of this.
 */
#include "ep/ep.h"

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
		return -FI_ENOPROTOOPT;
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
	default:
		return -FI_ENOPROTOOPT;
	}
}

/* ---- flags of operations ---------------------------------------------------------------------- */

void shmcma_ep_set_flags(struct shmcma_ep *ep)
{
	for (struct shmcma_ep_fid *fid = ep->fids; fid; fid = fid->next) {
		shmcma_set(fid->send_flags,
			   shmcma_send_flags(shmcma_now(fid->tx_op_flags), ep->tx_selective));
		shmcma_set(fid->recv_flags,
			   shmcma_recv_flags(shmcma_now(fid->rx_op_flags), shmcma_now(ep->rx_selective)));
	}
}

void shmcma_ep_set_selective(struct shmcma_ep *ep)
{
	shmcma_set(ep->rx_selective, true);
	shmcma_ep_set_flags(ep);
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
