// Groups with racks (KIP-881) shared out by Kafka's own assignors.
//
// A line `racked-range TOPICS MEMBERS SHARES` is one group as `range` tells it, but a topic is `name:racks/racks/...`, the
// racks of each partition's replicas with a letter each, and a member `id@rack=topics` or `id/instance@rack=topics`; one
// that says nothing of a rack has none. Under `racked-sticky` and `racked-cooperative-sticky` a member also tells what it
// had, as `id@rack=topics=partitions`. The shares of a cooperative group are those at which it comes to rest.

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

final class Racked {
    private static final int RANGES = 240;
    private static final int STICKY = 160;
    private static final int GENERATION = 7;
    private static final int ROUNDS = 6;

    private record Member(Optional<String> instance, String rack, List<String> topics, List<TopicPartition> had) {}

    private Racked() {}

    static void write(StringBuilder out) {
        Random random = new Random(881);
        for (int group = 0; group < RANGES; group++) {
            Map<String, List<String>> topics = topics(random, 10);
            Map<String, Member> members = members(random, topics, 6);
            line(out, "racked-range", topics, members, false, shareOut(new RangeAssignor(), topics, members));
        }
        for (int group = 0; group < STICKY; group++) {
            Map<String, List<String>> topics = topics(random, 12);
            Map<String, Member> members = members(random, topics, 6);
            own(random, topics, members);
            line(out, "racked-sticky", topics, members, true, shareOut(new StickyAssignor(), topics, members));
            line(out, "racked-cooperative-sticky", topics, members, true, atRest(topics, members));
        }
    }

    /// Topics, many of as many partitions as others, in up to four racks; some stand in all of them.
    private static Map<String, List<String>> topics(Random random, int most) {
        Map<String, List<String>> topics = new TreeMap<>();
        String racks = "abcd".substring(0, 1 + random.nextInt(4));
        int usual = 1 + random.nextInt(most);
        int kind = random.nextInt(5);
        int count = 1 + random.nextInt(4);
        for (int topic = 0; topic < count; topic++) {
            List<String> partitions = new ArrayList<>();
            int size = random.nextInt(3) > 0 ? usual : 1 + random.nextInt(most);
            boolean everywhere = random.nextInt(5) == 0;
            int replicas = 1 + random.nextInt(racks.length());
            for (int partition = 0; partition < size; partition++) {
                TreeSet<String> stands = new TreeSet<>();
                for (int replica = 0; replica < racks.length(); replica++) {
                    boolean drawn = kind == 0 ? random.nextBoolean() : stands.size() < replicas;
                    if (everywhere || drawn) {
                        int at = kind < 3 ? random.nextInt(racks.length()) : partition + replica;
                        stands.add(racks.substring(everywhere ? replica : at % racks.length()).substring(0, 1));
                    }
                }
                partitions.add(String.join("", stands));
            }
            topics.put("t" + topic, partitions);
        }
        return topics;
    }

    private static Map<String, Member> members(Random random, Map<String, List<String>> topics, int most) {
        Map<String, Member> members = new TreeMap<>();
        boolean same = random.nextBoolean();
        int without = random.nextInt(3) * 3;
        int size = 1 + random.nextInt(most);
        String racks = "abcde".substring(0, 1 + random.nextInt(5));
        for (int member = 0; member < size; member++) {
            List<String> wanted = new ArrayList<>();
            for (String topic : topics.keySet()) {
                if (same || random.nextInt(3) > 0) {
                    wanted.add(topic);
                }
            }
            int at = random.nextInt(racks.length());
            String rack = random.nextInt(10) < without ? "" : racks.substring(at, at + 1);
            Optional<String> instance =
                    random.nextInt(3) == 0 ? Optional.of("i" + random.nextInt(1000)) : Optional.empty();
            members.put((char) ('a' + random.nextInt(26)) + "" + member, new Member(instance, rack, wanted, List.of()));
        }
        return members;
    }

    /// Lets members have had some of the partitions: none, whichever ones, or shares that were even.
    private static void own(Random random, Map<String, List<String>> topics, Map<String, Member> members) {
        int kind = random.nextInt(4);
        Map<String, List<TopicPartition>> had = new TreeMap<>();
        members.keySet().forEach(id -> had.put(id, new ArrayList<>()));
        if (kind == 1 || kind == 2) {
            topics.forEach((topic, partitions) -> {
                for (int partition = 0; partition < partitions.size(); partition++) {
                    List<String> readers = new ArrayList<>(members.keySet());
                    readers.removeIf(id -> !members.get(id).topics().contains(topic));
                    int at = random.nextInt(readers.size() + 1);
                    if (at < readers.size()) {
                        had.get(readers.get(at)).add(new TopicPartition(topic, partition));
                    }
                }
            });
        } else if (kind == 3) {
            Map<String, Member> before = new TreeMap<>(members);
            before.keySet().removeIf(id -> random.nextInt(4) == 0);
            if (!before.isEmpty()) {
                shareOut(new StickyAssignor(), topics, before).forEach((id, share) -> had.get(id).addAll(share));
            }
        }
        members.replaceAll((id, member) ->
                new Member(member.instance(), member.rack(), member.topics(), had.get(id)));
    }

    private static Map<String, List<TopicPartition>> shareOut(
            ConsumerPartitionAssignor assignor, Map<String, List<String>> topics, Map<String, Member> members) {
        Map<String, Subscription> told = new TreeMap<>();
        members.forEach((id, member) -> {
            boolean tells = !member.had().isEmpty();
            StickyAssignor own = new StickyAssignor();
            if (tells) {
                own.onAssignment(
                        new Assignment(member.had()),
                        new ConsumerGroupMetadata("g", GENERATION, id, member.instance()));
            }
            boolean cooperative = assignor instanceof CooperativeStickyAssignor;
            Subscription subscription = new Subscription(
                    member.topics(),
                    cooperative ? null : own.subscriptionUserData(new TreeSet<>(member.topics())),
                    cooperative ? member.had() : List.of(),
                    cooperative && tells ? GENERATION : -1,
                    Optional.of(member.rack()).filter(rack -> !rack.isEmpty()));
            subscription.setGroupInstanceId(member.instance());
            told.put(id, subscription);
        });
        Map<String, List<TopicPartition>> shares = new TreeMap<>();
        assignor.assign(cluster(topics), new GroupSubscription(told)).groupAssignment()
                .forEach((id, share) -> shares.put(id, share.partitions()));
        return shares;
    }

    /// Rebalances until each partition that anybody reads is somebody's.
    private static Map<String, List<TopicPartition>> atRest(
            Map<String, List<String>> topics, Map<String, Member> members) {
        Map<String, Member> present = new TreeMap<>(members);
        int readable = topics.entrySet().stream()
                .filter(topic -> members.values().stream().anyMatch(one -> one.topics().contains(topic.getKey())))
                .mapToInt(topic -> topic.getValue().size()).sum();
        for (int round = 0; round < ROUNDS; round++) {
            Map<String, List<TopicPartition>> shares = shareOut(new CooperativeStickyAssignor(), topics, present);
            if (shares.values().stream().mapToInt(List::size).sum() == readable) {
                return shares;
            }
            present.replaceAll((id, one) -> new Member(one.instance(), one.rack(), one.topics(), shares.get(id)));
        }
        throw new IllegalStateException("the group does not come to rest");
    }

    private static void line(
            StringBuilder out, String name, Map<String, List<String>> topics, Map<String, Member> members,
            boolean had, Map<String, List<TopicPartition>> shares) {
        StringJoiner topicWords = new StringJoiner(";");
        topics.forEach((topic, partitions) -> topicWords.add(topic + ":" + String.join("/", partitions)));
        StringJoiner memberWords = new StringJoiner(";");
        members.forEach((id, member) -> memberWords.add(id
                + member.instance().map(instance -> "/" + instance).orElse("")
                + (member.rack().isEmpty() ? "" : "@" + member.rack())
                + "=" + String.join(",", member.topics())
                + (had ? "=" + Assignors.listed(member.had()) : "")));
        StringJoiner shareWords = new StringJoiner(";");
        shares.forEach((id, share) -> shareWords.add(id + "=" + Assignors.listed(share)));
        out.append(name).append(' ').append(topicWords).append(' ');
        out.append(memberWords).append(' ').append(shareWords).append('\n');
    }

    /// A broker in each rack, and one that does not tell where it stands.
    private static Cluster cluster(Map<String, List<String>> topics) {
        Node nowhere = new Node(9, "localhost", 9092);
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        topics.forEach((topic, racks) -> {
            for (int partition = 0; partition < racks.size(); partition++) {
                List<Node> replicas = new ArrayList<>();
                for (String rack : racks.get(partition).split("")) {
                    replicas.add(rack.isEmpty()
                            ? nowhere
                            : nodes.computeIfAbsent(rack, of -> new Node(of.charAt(0) - 'a', "localhost", 9092, of)));
                }
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic, partition, all[0], all, all));
            }
        });
        nodes.put("", nowhere);
        return new Cluster("c", nodes.values(), partitions, Collections.emptySet(), Collections.emptySet());
    }
}
