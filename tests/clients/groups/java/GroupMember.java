import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Kafka's Java consumer as a member of a group; the same orders and events as member.py, and the
 * same promise: records are told before they are committed.
 */
public final class GroupMember implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(50);
    private static final String END = "";
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "RangeAssignor",
        "roundrobin", "RoundRobinAssignor",
        "sticky", "StickyAssignor",
        "cooperative-sticky", "CooperativeStickyAssignor");

    private final String bootstrap;
    private final PrintStream events;
    private final LinkedBlockingQueue<String> orders = new LinkedBlockingQueue<>();
    private final Set<TopicPartition> owned = new HashSet<>();
    private final Map<TopicPartition, Long> handed = new HashMap<>();
    private KafkaConsumer<String, String> consumer;
    private boolean commits;

    private GroupMember(String bootstrap, PrintStream events) {
        this.bootstrap = bootstrap;
        this.events = events;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream events = System.out;
        System.setOut(System.err);
        GroupMember member = new GroupMember(arguments[0], events);
        Thread listener = new Thread(member::listen);
        listener.setDaemon(true);
        listener.start();
        member.run();
    }

    private void listen() {
        try {
            BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                orders.add(line);
            }
        } catch (java.io.IOException error) {
            error.printStackTrace();
        }
        orders.add(END);
    }

    private void run() throws Exception {
        tell("ready", JSON.createObjectNode());
        while (true) {
            String order = consumer == null ? orders.take() : orders.poll();
            if (order == null) {
                poll();
            } else if (order.equals(END)) {
                break;
            } else {
                obey(JSON.readTree(order));
            }
        }
        if (consumer != null) {
            consumer.close();
        }
    }

    private void obey(JsonNode order) throws Exception {
        switch (order.get("op").asText()) {
            case "join" -> join(order);
            case "commit" -> commit(order.get("metadata").asText());
            case "committed" -> tellCommitted(order.get("places"));
            case "leave" -> {
                KafkaConsumer<String, String> leaving = consumer;
                consumer = null;
                leaving.close();
                tell("left", JSON.createObjectNode());
            }
            default -> throw new IllegalArgumentException(order.toString());
        }
    }

    private void join(JsonNode order) {
        owned.clear();
        handed.clear();
        commits = order.get("commits").asBoolean();
        consumer = new KafkaConsumer<>(
            config(order), new StringDeserializer(), new StringDeserializer());
        if (order.get("pattern").isNull()) {
            List<String> topics = new ArrayList<>();
            order.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics, this);
        } else {
            consumer.subscribe(Pattern.compile(order.get("pattern").asText()), this);
        }
    }

    private Properties config(JsonNode order) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", order.get("group").asText());
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("metadata.max.age.ms", "400");
        config.put("fetch.max.wait.ms", "50");
        if (!order.get("instance").isNull()) {
            config.put("group.instance.id", order.get("instance").asText());
        }
        JsonNode assignor = order.get("assignor");
        if (order.get("protocol").asText().equals("consumer")) {
            config.put("group.protocol", "consumer");
            if (!assignor.isNull()) {
                config.put("group.remote.assignor", assignor.asText());
            }
            return config;
        }
        int session = order.get("session_ms").asInt();
        config.put("session.timeout.ms", String.valueOf(session));
        config.put("heartbeat.interval.ms", "300");
        if (!assignor.isNull()) {
            config.put(
                "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + ASSIGNORS.get(assignor.asText()));
        }
        return config;
    }

    private void poll() throws Exception {
        ConsumerRecords<String, String> records = consumer.poll(POLL);
        if (records.isEmpty()) {
            return;
        }
        ObjectNode event = JSON.createObjectNode();
        ArrayNode told = event.putArray("records");
        records.forEach(record -> told.addArray()
            .add(record.topic()).add(record.partition()).add(record.offset()).add(record.value()));
        tell("read", event);
        records.forEach(record -> handed.put(
            new TopicPartition(record.topic(), record.partition()), record.offset() + 1));
        if (commits) {
            commit("");
        }
    }

    private void commit(String metadata) throws Exception {
        ObjectNode event = JSON.createObjectNode();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        handed.forEach((place, offset) ->
            offsets.put(place, new OffsetAndMetadata(offset, metadata)));
        if (offsets.isEmpty()) {
            tell("refused", event.put("error", "nothing that was read is owned any more"));
            return;
        }
        try {
            consumer.commitSync(offsets);
        } catch (KafkaException error) {
            tell("refused", event.put("error", error.toString()));
            return;
        }
        ArrayNode told = event.putArray("offsets");
        offsets.forEach((place, at) ->
            told.addArray().add(place.topic()).add(place.partition()).add(at.offset()));
        tell("committed", event);
    }

    private void tellCommitted(JsonNode places) throws Exception {
        List<TopicPartition> asked = new ArrayList<>();
        places.forEach(each ->
            asked.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
        Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new HashSet<>(asked));
        ObjectNode event = JSON.createObjectNode();
        ArrayNode told = event.putArray("offsets");
        for (TopicPartition place : asked) {
            OffsetAndMetadata at = found.get(place);
            if (at == null) {
                told.addNull();
            } else {
                told.addArray().add(at.offset()).add(at.metadata());
            }
        }
        tell("found", event);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        owned.addAll(places);
        tellOwned();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        owned.removeAll(places);
        places.forEach(handed::remove);
        tellOwned();
    }

    private void tellOwned() {
        Comparator<TopicPartition> order =
            Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition);
        Set<TopicPartition> sorted = new TreeSet<>(order);
        sorted.addAll(owned);
        ObjectNode event = JSON.createObjectNode();
        ArrayNode told = event.putArray("places");
        sorted.forEach(place -> told.addArray().add(place.topic()).add(place.partition()));
        tell("owned", event);
    }

    private void tell(String name, ObjectNode event) {
        event.put("event", name).put("time_ns", System.nanoTime());
        events.println(event);
        events.flush();
    }
}
